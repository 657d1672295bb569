-- Each schema says which release is the oldest that it serves, so that one which does not know it
-- can judge. A migration that only adds leaves the number; one after which an older release would go
-- wrong raises it. Processes of schema 5 that run go on.
-- compatible_with: 5

ALTER TABLE outlive_schema ADD COLUMN compatible_with INTEGER;
