-- Version 8: what a printed value is held against. published.statistic may also be 'drop variation', 'best for',
-- 'best ratio variation', 'at equal quality' or 'at equal time'.

ALTER TABLE published ADD COLUMN against_json TEXT NOT NULL DEFAULT '[]';  -- list of methods' labels; [] = the baseline
