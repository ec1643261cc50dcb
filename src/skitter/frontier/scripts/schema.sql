-- The file of an embedded frontier, format 2. One owner process writes it; anybody may read it.

CREATE TABLE job (                 -- one row: what is true of the job as a whole
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    state          TEXT    NOT NULL,
    added          INTEGER NOT NULL,
    done           INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,  -- last number given to a request, a lease or a dead letter
    seed_position  INTEGER NOT NULL,
    seeds_done     INTEGER NOT NULL,
    fingerprint_seed    INTEGER NOT NULL,  -- signed 64 bits
    fingerprint_version INTEGER NOT NULL,
    seen_on_disk   INTEGER NOT NULL        -- 0: seen_log, 1: seen_keys
);

CREATE TABLE slots (               -- units of politeness
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    floor      REAL NOT NULL DEFAULT 0,  -- Crawl-delay, seconds
    held_until REAL NOT NULL DEFAULT 0,  -- Unix time
    grants     BLOB                      -- recent grants of slots with rates: packed doubles
);

-- Queued and leased requests. Rows are appended in the order of their numbers and found by a small index
-- in the order of their slot, which costs fewer page writes than rows clustered by slot. A request leaves
-- this table when it is delayed, done or given up; a lease is no move (it ends with the owner), only
-- noted in `leases`.
CREATE TABLE queue (
    seq INTEGER PRIMARY KEY, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL
);
CREATE INDEX queue_order ON queue (slot, rank, seq);

CREATE TABLE delayed (             -- requests with a time before which they may not be fetched
    at REAL NOT NULL,
    seq INTEGER NOT NULL, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL,
    PRIMARY KEY (at, seq)
) WITHOUT ROWID;

-- Batches of leases in force. After a crash every request named here whose row still has the same
-- attempt and lost counts was in hand when the owner died. Row 0, without members, is there while an
-- owner has the file open.
CREATE TABLE leases (id INTEGER PRIMARY KEY, members BLOB NOT NULL);

CREATE TABLE dead (                -- requests given up
    id INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL,
    error TEXT NOT NULL, failed_at REAL NOT NULL
);

-- Known fingerprints, 16 bytes each, many to a row, in the order in which they became known ('+'),
-- visited ('v', only with a TTL) or forgotten ('-'). Appending costs a tenth of a tree of keys.
CREATE TABLE seen_log (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, fingerprints BLOB NOT NULL
);

CREATE TABLE seen_keys (           -- the same as a tree, once there are too many for memory
    fingerprint BLOB PRIMARY KEY, until REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE outputs (             -- committed byte ranges of part files
    part TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    PRIMARY KEY (part, start)
) WITHOUT ROWID;

CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE notes (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;

-- What was counted per worker, host or task; beyond a bound the smallest are together under the empty key.
CREATE TABLE tallies (
    "group" TEXT NOT NULL, key TEXT NOT NULL,
    pages INTEGER NOT NULL, items INTEGER NOT NULL, bytes INTEGER NOT NULL,
    failed INTEGER NOT NULL, retried INTEGER NOT NULL,
    PRIMARY KEY ("group", key)
) WITHOUT ROWID;

CREATE TABLE bans (key TEXT PRIMARY KEY, banned INTEGER NOT NULL) WITHOUT ROWID;  -- slots

CREATE TABLE changes (             -- one row: settings changed while the job ran, MessagePack
    id INTEGER PRIMARY KEY CHECK (id = 1), packed BLOB NOT NULL
);
