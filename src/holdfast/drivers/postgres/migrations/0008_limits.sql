-- Schema 8: who set the limits of a queue: 'operator', or 'handler' where a declaration did. Hosts of
-- older releases go on: what they set into a new row is nobody's, and counts as declared.
-- compatible_with: 5

ALTER TABLE {s}.queue ADD COLUMN limits_by text;
