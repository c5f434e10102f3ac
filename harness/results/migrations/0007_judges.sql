-- Version 7: judges of answers, and methods whose weights are not there. What a judge is told of an answer beside the
-- answer is an event of its sample, 'ask_judge' with metric, request and reference; its marks are sample_values.

CREATE TABLE judges (                 -- whose marks an experiment holds: one judge and one question for each metric
  experiment      TEXT NOT NULL,
  metric          TEXT NOT NULL,      -- of sample_values
  model           TEXT NOT NULL,      -- as its endpoint names it
  question_sha256 TEXT NOT NULL,      -- of the question, the system message before it and the temperature
  PRIMARY KEY (experiment, metric)
) STRICT, WITHOUT ROWID;

-- Cells have a sixth state, missing: the weights that their method needs are not there; reason names them.
DROP VIEW v_failures;
CREATE VIEW v_failures AS
SELECT experiment, kind, model, workload, method, state, reason, planned_samples, cell_id, failure_log
FROM cells WHERE superseded = 0 AND state IN ('failed', 'inactive', 'missing')
ORDER BY experiment, position;
