-- As in the main file: which release is the oldest that this schema serves.
-- compatible_with: 1

ALTER TABLE outlive_schema ADD COLUMN compatible_with INTEGER;
