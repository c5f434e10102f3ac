-- Version 6: samples that do not fit the model's window cost themselves alone, and are counted.

ALTER TABLE cells ADD COLUMN left_out_samples INTEGER NOT NULL DEFAULT 0;  -- not among planned_samples

DROP VIEW v_cells;
CREATE VIEW v_cells AS
SELECT c.experiment, c.kind, c.model, c.workload, c.method, c.state, c.planned_samples,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id) AS done_samples,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id AND s.active = 1) AS active_samples,
       c.wall_s, c.baseline, c.reason, c.method_name, c.settings_json, c.protocol_sha256, c.position, c.cell_id,
       c.left_out_samples
FROM cells c WHERE c.superseded = 0
ORDER BY c.experiment, c.position;
