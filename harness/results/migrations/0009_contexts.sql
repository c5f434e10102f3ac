-- Version 9: which context a sample asks about, so that its questions count as one where samples are resampled.

ALTER TABLE samples ADD COLUMN context TEXT NOT NULL DEFAULT '';  -- unique in the workload; '' = the sample's own
