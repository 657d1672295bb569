-- Who set the limits of a queue: 'operator', or 'handler' where a declaration did. Processes of older
-- releases go on: what they set into a new row is nobody's, and counts as declared.
-- compatible_with: 5

ALTER TABLE holdfast_queue ADD COLUMN limits_by TEXT;
