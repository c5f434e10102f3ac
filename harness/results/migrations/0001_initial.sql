-- Version 1 of the results database. The explanations are kept inside the database: `sqlite3 results.db .schema`.
-- Keys are names and hashes, never counters, so that a run that was killed and resumed, or merged from parts, has the
-- same rows as an undisturbed one. JSON columns are canonical: keys sorted, no blanks.

CREATE TABLE experiments (            -- one row per name, e.g. 'specache/table1'
  experiment     TEXT NOT NULL PRIMARY KEY,
  title          TEXT NOT NULL,
  config_json    TEXT NOT NULL,       -- the config last used, overrides applied, matrices expanded
  table_json     TEXT NOT NULL        -- rows, columns and cell format of the table that reports draw
) STRICT, WITHOUT ROWID;

CREATE TABLE published (              -- values printed in papers, beside which ours are shown
  experiment     TEXT NOT NULL,
  model          TEXT NOT NULL,
  workload       TEXT NOT NULL,
  method         TEXT NOT NULL,       -- a method's label
  metric         TEXT NOT NULL,
  value          REAL NOT NULL,
  unit           TEXT NOT NULL,
  source         TEXT NOT NULL,       -- 'arXiv:2503.16163, table 1'
  note           TEXT NOT NULL,
  PRIMARY KEY (experiment, model, workload, method, metric, source)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (                   -- one row each time `kvarena run` started
  run_id         TEXT NOT NULL PRIMARY KEY,  -- start time and random digits
  experiment     TEXT NOT NULL,
  state          TEXT NOT NULL,       -- running, finished, interrupted (also: killed), failed
  config_path    TEXT NOT NULL,
  config_text    TEXT NOT NULL,       -- the file as it was, byte for byte
  config_sha256  TEXT NOT NULL,       -- of config_text
  overrides_json TEXT NOT NULL,       -- --set, --model, --limit as given
  git_revision   TEXT NOT NULL,       -- '-dirty' at the end when the tree had changes; 'unknown' outside git
  build_json     TEXT NOT NULL,       -- compiler, flags, build type
  host           TEXT NOT NULL,
  kernel         TEXT NOT NULL,
  cpu_model      TEXT NOT NULL,
  cpu_features   TEXT NOT NULL,       -- those that kernels choose by, separated by blanks
  cpu_threads    INTEGER NOT NULL,
  gpu            TEXT NOT NULL,       -- '' = none
  libraries_json TEXT NOT NULL,       -- {"sqlite": "3.40.1", ...}
  seed           INTEGER NOT NULL,
  started_at     TEXT NOT NULL,       -- UTC, ISO 8601
  finished_at    TEXT NOT NULL        -- '' while running
) STRICT, WITHOUT ROWID;

CREATE TABLE run_inputs (             -- files that decided the numbers
  run_id         TEXT NOT NULL,
  kind           TEXT NOT NULL,       -- model, data, artifact
  name           TEXT NOT NULL,
  sha256         TEXT NOT NULL,
  detail_json    TEXT NOT NULL,       -- dtype, path, bytes, source
  PRIMARY KEY (run_id, kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE cells (                  -- model x workload x method x settings, judged one way
  cell_id         TEXT NOT NULL PRIMARY KEY,  -- hash of the columns from experiment to protocol_sha256
  experiment      TEXT NOT NULL,
  kind            TEXT NOT NULL,      -- quality, timing
  model           TEXT NOT NULL,      -- label
  model_json      TEXT NOT NULL,
  workload        TEXT NOT NULL,      -- label
  workload_json   TEXT NOT NULL,
  method          TEXT NOT NULL,      -- label, e.g. 'kivi bits=2'
  method_name     TEXT NOT NULL,      -- as registered
  settings_json   TEXT NOT NULL,      -- the method's settings
  engine_json     TEXT NOT NULL,
  protocol_json   TEXT NOT NULL,      -- protocol card: template, stop tokens, truncation, dtype, data hash, ...
  protocol_sha256 TEXT NOT NULL,
  baseline        INTEGER NOT NULL,   -- 1 = what the other methods of its model and workload are paired with
  position        INTEGER NOT NULL,   -- order of the plan
  planned_samples INTEGER NOT NULL,
  state           TEXT NOT NULL,      -- pending, running, done, failed, inactive (never acted: left out of tables)
  reason          TEXT NOT NULL,      -- of failed and inactive
  superseded      INTEGER NOT NULL,   -- 1 = the config now asks for other settings under the same labels
  wall_s          REAL NOT NULL       -- summed over samples
) STRICT, WITHOUT ROWID;

CREATE TABLE cell_peaks (             -- largest resident bytes seen
  cell_id        TEXT NOT NULL,
  tier           TEXT NOT NULL,       -- device, host, disk, remote
  peak_bytes     INTEGER NOT NULL,
  PRIMARY KEY (cell_id, tier)
) STRICT, WITHOUT ROWID;

CREATE TABLE samples (
  cell_id          TEXT NOT NULL,
  sample_id        TEXT NOT NULL,     -- the workload's own name of it
  sample_index     INTEGER NOT NULL,  -- order within the workload
  prompt_sha256    TEXT NOT NULL,     -- of the token ids; equal across methods or the pairing is wrong
  prompt_tokens    INTEGER NOT NULL,
  truncated_tokens INTEGER NOT NULL,  -- cut from the prompt to fit; 0 = whole
  output_tokens    INTEGER NOT NULL,
  prediction       TEXT NOT NULL,
  references_json  TEXT NOT NULL,     -- list of accepted answers
  finish_reason    TEXT NOT NULL,     -- stop, length, ...
  active           INTEGER NOT NULL,  -- 1 = the method acted on this sample
  activity_json    TEXT NOT NULL,     -- counters that prove it: entries dropped, bits stored, tokens drafted
  wall_s           REAL NOT NULL,
  run_id           TEXT NOT NULL,     -- the run that judged it
  PRIMARY KEY (cell_id, sample_id)
) STRICT, WITHOUT ROWID;

-- clock: none (not a time), measured (wall clock), modelled (virtual clock on a hardware profile).
-- storage: real (bytes really saved), emulated (a link or tier was emulated), simulated (codec without packed form).
CREATE TABLE sample_values (
  cell_id        TEXT NOT NULL,
  sample_id      TEXT NOT NULL,
  metric         TEXT NOT NULL,
  clock          TEXT NOT NULL,
  value          REAL,                -- NULL = not defined for this sample
  unit           TEXT NOT NULL,
  storage        TEXT NOT NULL,
  PRIMARY KEY (cell_id, sample_id, metric, clock)
) STRICT, WITHOUT ROWID;

CREATE TABLE cell_values (            -- metrics that are no mean over samples
  cell_id        TEXT NOT NULL,
  metric         TEXT NOT NULL,
  clock          TEXT NOT NULL,
  value          REAL,
  unit           TEXT NOT NULL,
  storage        TEXT NOT NULL,
  PRIMARY KEY (cell_id, metric, clock)
) STRICT, WITHOUT ROWID;

CREATE TABLE series (                 -- one number per step, round or repeat
  cell_id        TEXT NOT NULL,
  sample_id      TEXT NOT NULL,
  name           TEXT NOT NULL,       -- kl_nats, accepted, inter_token_latency_ms, ...
  clock          TEXT NOT NULL,
  unit           TEXT NOT NULL,
  storage        TEXT NOT NULL,
  length         INTEGER NOT NULL,
  values_json    TEXT NOT NULL,       -- array of numbers, null = not defined; json_each() reads it
  PRIMARY KEY (cell_id, sample_id, name, clock)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (                 -- tier moves, verify rounds, retries
  cell_id        TEXT NOT NULL,
  sample_id      TEXT NOT NULL,
  position       INTEGER NOT NULL,    -- order within the sample
  event          TEXT NOT NULL,
  at_ms          REAL,                -- since the sample began; NULL = not timed
  data_json      TEXT NOT NULL,
  PRIMARY KEY (cell_id, sample_id, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX cells_by_place ON cells (experiment, kind, model, workload, position);
CREATE INDEX runs_by_experiment ON runs (experiment, started_at);

-- Cells in force with what is done of them.
CREATE VIEW v_cells AS
SELECT c.experiment, c.kind, c.model, c.workload, c.method, c.state, c.planned_samples,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id) AS done_samples,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id AND s.active = 1) AS active_samples,
       c.wall_s, c.baseline, c.reason, c.method_name, c.settings_json, c.protocol_sha256, c.position, c.cell_id
FROM cells c WHERE c.superseded = 0
ORDER BY c.experiment, c.position;

-- One row per judged sample.
CREATE VIEW v_samples AS
SELECT c.experiment, c.kind, c.model, c.workload, c.method, s.sample_index, s.sample_id, s.prompt_tokens,
       s.truncated_tokens, s.output_tokens, s.prediction, s.references_json, s.finish_reason, s.active,
       s.activity_json, s.wall_s, s.prompt_sha256, s.run_id, s.cell_id
FROM samples s JOIN cells c USING (cell_id) WHERE c.superseded = 0
ORDER BY c.experiment, c.position, s.sample_index;

-- One row per sample and metric.
CREATE VIEW v_values AS
SELECT c.experiment, c.kind, c.model, c.workload, c.method, v.metric, v.clock, s.sample_index, v.sample_id, v.value,
       v.unit, v.storage, s.active, c.state, c.protocol_sha256, c.position, v.cell_id
FROM sample_values v JOIN samples s USING (cell_id, sample_id) JOIN cells c USING (cell_id)
WHERE c.superseded = 0;

-- The mean of every metric, and cell metrics as they are (n counts judged samples; variance divides by n - 1).
-- Failed cells and those that never acted are not here: v_failures has them.
CREATE VIEW v_scores AS
SELECT experiment, kind, model, workload, method, metric, clock, avg(value) AS mean, unit, storage, count(value) AS n,
       CASE WHEN count(value) > 1
            THEN max(0.0, (sum(value * value) - count(value) * avg(value) * avg(value)) / (count(value) - 1))
       END AS variance, min(value) AS lowest, max(value) AS highest, sum(active) AS active_samples, state,
       protocol_sha256, position, cell_id
FROM v_values WHERE state IN ('running', 'done')
GROUP BY cell_id, metric, clock
UNION ALL
SELECT c.experiment, c.kind, c.model, c.workload, c.method, v.metric, v.clock, v.value, v.unit, v.storage,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id), NULL, NULL, NULL,
       (SELECT count(*) FROM samples s WHERE s.cell_id = c.cell_id AND s.active = 1), c.state,
       c.protocol_sha256, c.position, c.cell_id
FROM cell_values v JOIN cells c USING (cell_id)
WHERE c.superseded = 0 AND c.state IN ('running', 'done');

-- What has no score, and why.
CREATE VIEW v_failures AS
SELECT experiment, kind, model, workload, method, state, reason, planned_samples, cell_id
FROM cells WHERE superseded = 0 AND state IN ('failed', 'inactive')
ORDER BY experiment, position;

-- Each method's value beside the baseline's on the same sample. comparable = 0: their prompts differ.
CREATE VIEW v_paired AS
SELECT c.experiment, c.kind, c.model, c.workload, c.method, v.metric, v.clock, s.sample_index, v.sample_id,
       v.value, b.value AS baseline_value, v.value - b.value AS difference, v.unit, s.active,
       (s.prompt_sha256 = bs.prompt_sha256) AS comparable, base.method AS baseline, c.position, c.cell_id
FROM cells c
JOIN cells base ON base.experiment = c.experiment AND base.kind = c.kind AND base.model = c.model
               AND base.workload = c.workload AND base.baseline = 1 AND base.superseded = 0
JOIN samples s ON s.cell_id = c.cell_id
JOIN samples bs ON bs.cell_id = base.cell_id AND bs.sample_id = s.sample_id
JOIN sample_values v ON v.cell_id = c.cell_id AND v.sample_id = s.sample_id
JOIN sample_values b ON b.cell_id = base.cell_id AND b.sample_id = v.sample_id AND b.metric = v.metric
                    AND b.clock = v.clock
WHERE c.superseded = 0 AND c.baseline = 0 AND c.state IN ('running', 'done');

-- Printed values beside ours.
CREATE VIEW v_published AS
SELECT p.experiment, p.model, p.workload, p.method, p.metric, p.value AS published, s.mean AS reproduced, p.unit,
       s.n, s.clock, p.source, p.note
FROM published p
LEFT JOIN v_scores s ON s.experiment = p.experiment AND s.model = p.model AND s.workload = p.workload
                    AND s.method = p.method AND s.metric = p.metric;
