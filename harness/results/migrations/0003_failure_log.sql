-- Version 3: what a process wrote last before a method ended it, beside the reason.

ALTER TABLE cells ADD COLUMN failure_log TEXT NOT NULL DEFAULT '';  -- of failed: lines, '' = the process lived on

DROP VIEW v_failures;
CREATE VIEW v_failures AS
SELECT experiment, kind, model, workload, method, state, reason, planned_samples, cell_id, failure_log
FROM cells WHERE superseded = 0 AND state IN ('failed', 'inactive')
ORDER BY experiment, position;
