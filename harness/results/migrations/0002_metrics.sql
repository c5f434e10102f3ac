-- Version 2: what a metric's values are and which way is good, as the program that judged them says. Readers need no
-- list of metrics of their own, and a comparison of old and new results uses what was true when they were made.

CREATE TABLE metrics (
  metric         TEXT NOT NULL PRIMARY KEY,
  title          TEXT NOT NULL,
  unit           TEXT NOT NULL,       -- of stored values: fraction, nats, ms, bytes, perplexity, ...; '' = a plain number
  better         TEXT NOT NULL,       -- higher, lower, or '' = neither
  table_scale    REAL NOT NULL        -- papers print the stored value times this
) STRICT, WITHOUT ROWID;

-- A second run of full KV is no reproduction of a printed value.
DROP VIEW v_published;
CREATE VIEW v_published AS
SELECT p.experiment, p.model, p.workload, p.method, p.metric, p.value AS published, s.mean AS reproduced, p.unit,
       s.n, s.clock, p.source, p.note
FROM published p
LEFT JOIN v_scores s ON s.experiment = p.experiment AND s.model = p.model AND s.workload = p.workload
                    AND s.method = p.method AND s.metric = p.metric AND s.kind <> 'noise_floor';
