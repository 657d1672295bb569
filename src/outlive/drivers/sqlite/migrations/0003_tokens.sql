-- Bearer tokens of the HTTP API, and the log of admin acts. Instants are UTC: a token's end is a
-- date that a person chose.

-- What is kept of a token is the SHA-256 of its text, never the text.
CREATE TABLE outlive_bearer (
    namespace     TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    digest        TEXT    NOT NULL,
    scopes        TEXT    NOT NULL,  -- separated by spaces
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    revoked_at_us INTEGER,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outlive_bearer_digest ON outlive_bearer (namespace, digest);

CREATE TABLE outlive_act (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT    NOT NULL,
    at_us     INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    subject   TEXT    NOT NULL
);
CREATE INDEX outlive_act_newest ON outlive_act (namespace, seq);
