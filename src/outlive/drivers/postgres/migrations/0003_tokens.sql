-- Schema 3: bearer tokens of the HTTP API, and the log of admin acts.

-- What is kept of a token is the SHA-256 of its text, never the text.
CREATE TABLE {s}.bearer (
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    digest text COLLATE "C" NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (namespace, id),
    UNIQUE (namespace, digest)
);

CREATE TABLE {s}.act (
    namespace text COLLATE "C" NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    PRIMARY KEY (namespace, seq)
);
