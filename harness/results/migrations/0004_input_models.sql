-- Version 4: inputs are named within the model they belong to. Two models whose files are named alike, or whose
-- tokenizers make other samples of one workload, had one row for both before.

CREATE TABLE run_inputs_of_models (   -- files that decided the numbers
  run_id         TEXT NOT NULL,
  model          TEXT NOT NULL,       -- label of the model that read it; '' = all, or written before version 4
  kind           TEXT NOT NULL,       -- model, data, artifact, plugin
  name           TEXT NOT NULL,       -- of a model: the file; of data: the workload's label
  sha256         TEXT NOT NULL,
  detail_json    TEXT NOT NULL,       -- dtype, path, bytes, source
  PRIMARY KEY (run_id, model, kind, name)
) STRICT, WITHOUT ROWID;

INSERT INTO run_inputs_of_models SELECT run_id, '', kind, name, sha256, detail_json FROM run_inputs;
DROP TABLE run_inputs;
ALTER TABLE run_inputs_of_models RENAME TO run_inputs;
