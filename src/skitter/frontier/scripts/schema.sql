-- The file of an embedded frontier, format 14. One owner process writes it; any process may read it.

CREATE TABLE job (                 -- one row: the state of the job as a whole
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    state          TEXT    NOT NULL,
    added          INTEGER NOT NULL,
    done           INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,  -- the last number given to a request, lease or dead letter
    seed_position  INTEGER NOT NULL,
    seeds_done     INTEGER NOT NULL,
    fingerprint_seed    INTEGER NOT NULL,  -- signed 64 bits
    fingerprint_version INTEGER NOT NULL,
    pass_number    INTEGER NOT NULL,       -- 1: the first crawl
    changes        TEXT    NOT NULL,       -- the setting; '': the job does not remember pages
    counters       TEXT    NOT NULL,       -- JSON: those without a row in `counters`
    name           TEXT    NOT NULL,       -- '': any job may use the file
    clock          REAL    NOT NULL        -- Unix time of the last change, by the clock of its owner
);

CREATE TABLE slots (               -- units of politeness
    id           INTEGER PRIMARY KEY,
    key          TEXT NOT NULL UNIQUE,
    min_delay    REAL NOT NULL DEFAULT 0,  -- Crawl-delay, seconds
    paused_until REAL NOT NULL DEFAULT 0,  -- Unix time
    grants       BLOB                      -- for slots with rates, the times of recent grants: MessagePack
);

-- Queued and leased requests. Rows are appended in the order of their numbers and found through a small index
-- in the order of their slot, which costs fewer page writes than rows clustered by slot. A request leaves this
-- table when it is delayed, done or dead. A lease does not move it: leases end with the owner and are recorded
-- in `leases`.
CREATE TABLE queue (
    seq INTEGER PRIMARY KEY, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL
);
CREATE INDEX queue_order ON queue (slot, rank, seq);

-- Numbers of requests that count as removed from `queue` or from their pack. They are removed together, because the rows
-- of pages that are done together lie on different pages of the file.
CREATE TABLE removed (seq INTEGER PRIMARY KEY);

-- Requests that waited behind the heads of their slots when they were added: links of one page that differ only in URL and
-- fingerprint, queued or leased for the first time. `seq`: the number of the first one; the others follow. `urls`: what all
-- have in common, and the end of each, as MessagePack. A pack is removed with its last request.
CREATE TABLE packs (
    seq INTEGER PRIMARY KEY, slot INTEGER NOT NULL, rank INTEGER NOT NULL, amount INTEGER NOT NULL,
    priority INTEGER NOT NULL, record BLOB NOT NULL, fingerprints BLOB NOT NULL, urls BLOB NOT NULL
);
CREATE INDEX packs_order ON packs (slot, rank, seq, amount);

-- Numbers of requests that have left their pack: they are done or dropped, or have a row of another table.
CREATE TABLE unpacked (seq INTEGER PRIMARY KEY);

CREATE TABLE delayed (             -- requests that may not be fetched before a given time
    at REAL NOT NULL,
    seq INTEGER NOT NULL, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL,
    not_before REAL NOT NULL,      -- Unix time that the request names; 0: none
    PRIMARY KEY (at, seq)
) WITHOUT ROWID;

-- Batches of leases in force. After a crash, every request listed here whose row still has the same attempt
-- and lost counts was leased when the owner died. Row 0, without members, exists while an owner has the file
-- open.
CREATE TABLE leases (id INTEGER PRIMARY KEY, members BLOB NOT NULL);

CREATE TABLE dead (                -- dead letters
    id INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL, slot INTEGER NOT NULL, rank INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, url TEXT NOT NULL, record BLOB NOT NULL,
    priority INTEGER NOT NULL, dedup INTEGER NOT NULL,
    attempt INTEGER NOT NULL, lost INTEGER NOT NULL,
    error TEXT NOT NULL, failed_at REAL NOT NULL
);

-- Known fingerprints, 16 bytes each, many to a row, in the order in which they became known ('+'),
-- visited ('v', only with a TTL), forgotten ('-') or known until `at` ('u', from a repair). Appending costs a tenth of inserting into a tree of keys.
CREATE TABLE seen_log (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, fingerprints BLOB NOT NULL
);

-- The same in sorted runs, once there are too many for memory. Each run has keys with the same first byte, its `shard`. Later
-- runs of a shard prevail. They have what the log had of the shard up to its row `log_end`, which has the kind 'm'. The log is
-- removed up to where the runs of all shards reach. `filter`: the number of keys up to the end of each block, as 32 bits, and two
-- bytes of each key.
CREATE TABLE seen_runs (
    run INTEGER PRIMARY KEY, shard INTEGER NOT NULL, blocks INTEGER NOT NULL, amount INTEGER NOT NULL,
    log_end INTEGER NOT NULL, filter BLOB NOT NULL
);

-- The keys of a run, in order, in blocks. `id`: the run * 2^32 + an index below `blocks`, to which the four bytes after the
-- first one of a key are scaled. `until`: times until which the keys are known, as doubles (0: forgotten); NULL: without end.
CREATE TABLE seen_blocks (id INTEGER PRIMARY KEY, fingerprints BLOB NOT NULL, until BLOB);

-- What a job with the setting `changes` remembers of its pages. `since`: the pass that wrote the items; `ranges`: their
-- byte ranges, as MessagePack.
CREATE TABLE visits (
    fingerprint BLOB NOT NULL UNIQUE, pass_number INTEGER NOT NULL, change TEXT NOT NULL, status INTEGER NOT NULL,
    since INTEGER NOT NULL, url TEXT NOT NULL, ranges BLOB NOT NULL, memory BLOB NOT NULL
);

CREATE TABLE outputs (             -- committed byte ranges of part files
    part TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    PRIMARY KEY (part, start)
) WITHOUT ROWID;

-- Counters of field values (values/...): there may be thousands. The others are in the row of the job.
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE notes (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;

-- Counts per worker, host or request group. Beyond a limit, the smallest are added up under the empty key.
CREATE TABLE stats (
    dimension TEXT NOT NULL, key TEXT NOT NULL,
    pages INTEGER NOT NULL, items INTEGER NOT NULL, bytes INTEGER NOT NULL,
    failed INTEGER NOT NULL, retried INTEGER NOT NULL, responses INTEGER NOT NULL, fetch_us INTEGER NOT NULL,
    PRIMARY KEY (dimension, key)
) WITHOUT ROWID;

CREATE TABLE bans (key TEXT PRIMARY KEY, banned INTEGER NOT NULL) WITHOUT ROWID;  -- slots

CREATE TABLE settings_changes (    -- one row: the settings that were changed during runs, as MessagePack
    id INTEGER PRIMARY KEY CHECK (id = 1), packed BLOB NOT NULL
);
