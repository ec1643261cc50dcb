-- Prelude 4: known fingerprints.
--
-- Without a visited_ttl, SEEN is a hash of buckets. A bucket is the last `width` bytes of each of its fingerprints,
-- concatenated. The number of buckets grows by linear hashing (Litwin 1980): whenever the buckets hold more than FULL
-- fingerprints on average, the next one in turn is split in two. An exact set keeps all 16 bytes. A compact set keeps few
-- bytes: an unknown fingerprint counts as known with at most the configured probability, N / 256 ^ width for N fingerprints.
-- When a table reaches its bound, a wider table is added, with half of the remaining rate. The field 'seen' of the job holds
-- {width, buckets, count, bound} for each table; the last table grows.
-- With a visited_ttl, SEEN is a sorted set by the time until which a fingerprint is known.
local look_ahead, is_known, learn, forget, forget_all, write_seen = (function()
  local FULL = 12 -- fingerprints per bucket: a change of one writes the whole bucket to the server's log
  local FEWEST = 1000000 -- minimum bound of a compact table
  local tables -- read from the job on first use
  local tables_changed = false
  local buckets, changed_buckets, levels = {}, {}, {}

  local function compact_table(rate, width)
    while rate * 256 ^ width < FEWEST do
      width = width + 1
    end
    return {min(width, 16), 1, 0, rate * 256 ^ width}
  end

  local function seen_tables()
    if not tables then
      if meta[11] then
        tables = decode(meta[11])
      elseif config.seen_error_rate then
        tables = {compact_table(config.seen_error_rate / 2, 4)}
      else
        tables = {{16, 1, 0, math.huge}}
      end
    end
    return tables
  end

  -- The largest power of two up to the number of buckets.
  local function level_of(table_)
    local level = levels[table_]
    if not level then
      level = 1
      while level * 2 <= table_[2] do
        level = level * 2
      end
      levels[table_] = level
    end
    return level
  end

  local function field_of(number, table_, hash)
    local level = level_of(table_)
    local bucket = hash % (level * 2)
    if bucket >= table_[2] then
      bucket = hash % level
    end
    return pack('>BI4', number, bucket)
  end

  local function bucket_of(field)
    local bucket = buckets[field]
    if not bucket then
      bucket = call('HGET', SEEN, field) or ''
      buckets[field] = bucket
    end
    return bucket
  end

  local function put_bucket(field, bucket)
    buckets[field] = bucket
    changed_buckets[field] = true
  end

  -- Position of a fingerprint in its bucket; nil if it is not there.
  local function place_in(bucket, kept)
    local at = string.find(bucket, kept, 1, true)
    while at and (at - 1) % #kept ~= 0 do
      at = string.find(bucket, kept, at + 1, true)
    end
    return at
  end

  -- Read the buckets of many fingerprints with one call.
  local function look_ahead(fingerprints)
    if config.visited_ttl then
      return
    end
    for number, table_ in ipairs(seen_tables()) do
      local wanted = {}
      for _, fingerprint in ipairs(fingerprints) do
        local field = field_of(number, table_, struct.unpack('>I4', fingerprint, 13))
        if not buckets[field] then
          buckets[field] = ''
          wanted[#wanted + 1] = field
        end
      end
      for first = 1, #wanted, 1000 do
        local found = call('HMGET', SEEN, unpack(wanted, first, min(first + 999, #wanted)))
        for i = 1, #found do
          buckets[wanted[first + i - 1]] = found[i] or ''
        end
      end
    end
  end

  local function find_known(fingerprint)
    local hash = struct.unpack('>I4', fingerprint, 13)
    for number, table_ in ipairs(seen_tables()) do
      local field = field_of(number, table_, hash)
      local at = place_in(bucket_of(field), sub(fingerprint, -table_[1]))
      if at then
        return table_, field, at
      end
    end
  end

  local function is_known(fingerprint)
    if not config.visited_ttl then
      return find_known(fingerprint) ~= nil
    end
    local score = call('ZSCORE', SEEN, fingerprint)
    return score and (score == 'inf' or tonumber(score) > now)
  end

  -- Split the next bucket in turn.
  local function split_bucket(number, table_)
    local level = level_of(table_)
    local old, width = pack('>BI4', number, table_[2] - level), table_[1]
    local bucket, stay, go = bucket_of(old), {}, {}
    for at = 1, #bucket, width do
      local kept = sub(bucket, at, at + width - 1)
      local half = struct.unpack('>I4', kept, width - 3) % (level * 2) == table_[2] and go or stay
      half[#half + 1] = kept
    end
    put_bucket(old, table.concat(stay))
    put_bucket(pack('>BI4', number, table_[2]), table.concat(go))
    table_[2] = table_[2] + 1
    levels[table_] = nil
  end

  local function keep(fingerprint)
    local number = #tables
    local table_ = tables[number]
    if table_[3] >= table_[4] then
      number = number + 1
      table_ = compact_table(config.seen_error_rate / 2 ^ number, table_[1] + 1)
      tables[number] = table_
    end
    local field = field_of(number, table_, struct.unpack('>I4', fingerprint, 13))
    put_bucket(field, bucket_of(field) .. sub(fingerprint, -table_[1]))
    table_[3] = table_[3] + 1
    if table_[3] > FULL * table_[2] then
      split_bucket(number, table_)
    end
    tables_changed = true
  end

  -- Make a fingerprint known while its request is pending. Returns false if it is already known.
  local function learn(fingerprint)
    if is_known(fingerprint) then
      return false
    elseif config.visited_ttl then
      call('ZADD', SEEN, 'inf', fingerprint)
    else
      keep(fingerprint)
    end
    return true
  end

  local function forget(fingerprint)
    if config.visited_ttl then
      call('ZREM', SEEN, fingerprint)
      return
    end
    local table_, field, at = find_known(fingerprint)
    if at then
      local bucket = bucket_of(field)
      put_bucket(field, sub(bucket, 1, at - 1) .. sub(bucket, at + table_[1]))
      table_[3] = table_[3] - 1
      tables_changed = true
    end
  end

  -- Forget all fingerprints, including those of the present dead letters.
  local function forget_all()
    call('UNLINK', SEEN)
    call('HDEL', JOB, 'seen')
    tables, meta[11] = nil, false
    call('HSET', JOB, 'forgotten_to', text(sequence))
  end

  local function write_seen()
    local full, empty = {}, {}
    for field in pairs(changed_buckets) do
      if buckets[field] ~= '' then
        full[#full + 1] = field
        full[#full + 1] = buckets[field]
      else
        empty[#empty + 1] = field
      end
    end
    call_with_many('HSET', SEEN, full)
    call_with_many('HDEL', SEEN, empty)
    if tables_changed then
      set_in_job('seen', cmsgpack.pack(tables))
    end
  end
  return look_ahead, is_known, learn, forget, forget_all, write_seen
end)()
