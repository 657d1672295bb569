-- Schema 8: who set the limits of a queue: 'operator', or 'handler' where a declaration did. Hosts of
-- older releases go on: what they set into a new row is nobody's, and counts as declared. Over an
-- operator's limits they write their own all the same, and leave the name as it is: an operator's
-- limits hold once every host is of this release, and are to be set then.
-- compatible_with: 5

ALTER TABLE {s}.queue ADD COLUMN limits_by text;
