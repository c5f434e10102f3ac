-- Version 5: what a printed value says of a metric's values, and how exactly.

ALTER TABLE published ADD COLUMN statistic TEXT NOT NULL DEFAULT 'mean';  -- mean, minimum, relative, reduction, median drop
ALTER TABLE published ADD COLUMN bound TEXT NOT NULL DEFAULT '';          -- ~, <, <=, >, >=; '' = the value itself
ALTER TABLE published ADD COLUMN upper REAL;                              -- end of a range that begins at value, or NULL

-- Beside means, values that are printed as means.
DROP VIEW v_published;
CREATE VIEW v_published AS
SELECT p.experiment, p.model, p.workload, p.method, p.metric, p.value AS published, s.mean AS reproduced, p.unit,
       s.n, s.clock, p.source, p.note, p.statistic, p.bound, p.upper
FROM published p
LEFT JOIN v_scores s ON s.experiment = p.experiment AND s.model = p.model AND s.workload = p.workload
                    AND s.method = p.method AND s.metric = p.metric AND s.kind <> 'noise_floor'
                    AND p.statistic = 'mean';
