-- Prelude 5: requests and leases.
--
-- A request is one string that is in exactly one place: QUEUE, DELAYED, a lease or a dead letter.
--   slot \0 rank(8) number(6) attempt(2) lost(2) dedup(1) fingerprint(16) scheme(1) url-length(3) url cut(1) record
-- redis/records.py shortens URL and record.
-- Below, "key" is rank and number: within a slot, the order of the bytes is the order of the queue.
-- Format of a lease: fetch-ended(1) granted(8, double) worker-length(1) worker request.
local split, is_banned, enqueue_again, insert, report, put_outbox, dequeue, read_leases, lease_of, write_lease,
  end_lease, GONE, is_valid, remember, mark_dead, lose_lease, queue_due, take_dead, follow_recrawl, settle, finish =
  (function()
  local to_queue, from_queue, to_delayed = {}, {}, {}
  local to_leases, ended_ids, ended = {}, {}, {}

  local function split(request)
    local zero = string.find(request, '\0', 1, true)
    return sub(request, 1, zero - 1), sub(request, zero + 1, zero + 14), sub(request, zero + 15)
  end

  -- Put a request that is stored nowhere else into its queue, or among the delayed requests.
  local function enqueue(request, slot, key, at)
    is_active = true
    record_queue(slot.name)
    if at > now then
      slot.delayed = slot.delayed + 1
      slot.touched = true
      record_member('delayed', at)
      to_delayed[#to_delayed + 1] = at
      to_delayed[#to_delayed + 1] = request
      return
    end
    to_queue[#to_queue + 1] = 0
    to_queue[#to_queue + 1] = request
    if slot.queued == 0 or comes_before(key, slot.head) then
      slot.head = key
    end
    slot.queued = slot.queued + 1
    slot.touched = true
  end

  local bans = {}
  local function is_banned(name)
    if not meta[7] or meta[7] == '0' then
      return false
    end
    if bans[name] == nil then
      local bare = without_queue(name)
      bans[name] = call('SISMEMBER', BANNED, name) == 1 or bare ~= name and call('SISMEMBER', BANNED, bare) == 1
    end
    return bans[name]
  end

  local function enqueue_again(name, key, rest, at)
    local refusal = is_banned(name) and 'refused/banned' or spent(name)
    if refusal then -- it was leased or dead when its slot was banned or used up
      count(refusal, 1)
      return
    end
    enqueue(name .. '\0' .. key .. rest, slot_of(name), key, at)
  end

  local taken = {} -- for each entry of this call: '1' if it was added, '0' if it was known or refused

  -- The second part of the replies to add and commit. ARGV[6] is '1': which entries were added; 'recrawls': their number.
  local function report()
    if ARGV[6] == 'recrawls' then
      return '|' .. recrawls
    end
    return ARGV[6] == '1' and '|' .. table.concat(taken) or ''
  end

  -- Whether the budget of a slot refuses a new request, which is then counted.
  local function over_budget(name, limited)
    local refusal = spent(name[1])
    if not refusal and limited then
      local slot = slot_of(name[1], name[2])
      refusal = slot.queued + slot.delayed + slot.leased >= budgets.queued and 'refused/slot_queued'
    end
    if refusal then
      count(refusal, 1)
    end
    return refusal
  end

  -- Add requests. names: slots and their policies. Returns the numbers of new requests, of those refused because their slot is
  -- banned, and of those that the budget of their slot refuses.
  -- Format of an entry: index of its slot in names, rank ('' for lifo), rest, time, delay.
  -- counted_before: do not count known requests as refused. limited: the budget of queued requests applies, except to entries
  -- with is_seed.
  local function insert(names, entries, counted_before, limited)
    local added, refused, over = 0, 0, 0
    limited = limited and budgets and budgets.queued
    local fingerprints = {}
    for i, entry in ipairs(entries) do
      fingerprints[i] = sub(entry[3], 6, 21)
    end
    look_ahead(fingerprints)
    for _, entry in ipairs(entries) do
      local rest = entry[3]
      if is_banned(names[entry[1]][1]) then
        refused = refused + 1
        taken[#taken + 1] = '0'
      elseif budgets and (byte(rest, 5) == 0 or not is_known(sub(rest, 6, 21)))
        and over_budget(names[entry[1]], limited and not entry.is_seed) then
        over = over + 1
        taken[#taken + 1] = '0'
      elseif byte(rest, 5) == 0 or learn(sub(rest, 6, 21)) then
        local name = names[entry[1]]
        local slot = slot_of(name[1], name[2])
        local number = next_number()
        local rank = entry[2] ~= '' and entry[2] or pack('>I8', 2 ^ 53 - sequence)
        local key = rank .. number
        enqueue(slot.name .. '\0' .. key .. rest, slot, key, max(entry[4] or 0, now + (entry[5] or 0)))
        added = added + 1
        taken[#taken + 1] = '1'
      else
        taken[#taken + 1] = '0'
      end
    end
    if added + refused + over < #entries and not counted_before then
      count('refused/duplicate', #entries - added - refused - over)
    end
    if refused > 0 then
      count('refused/banned', refused)
    end
    return added, refused, over
  end

  -- Take a request out of its queue. settle() writes that.
  local function dequeue(request)
    from_queue[#from_queue + 1] = request
  end

  -- Keep requests for other partitions until they are safe there: id, value, id, value... docs/design/cluster-frontier.md
  local function put_outbox(outbox)
    for i = 2, #outbox, 2 do
      outbox[i] = pack('<d', now) .. outbox[i]
    end
    call_with_many('HSET', OUTBOX, outbox)
  end

  local packed_leases = {} -- those that read_leases() has read; false: there is none

  -- Read some leases, and the slots of their requests, with one call each.
  local function read_leases(ids)
    get_many(LEASES, ids, packed_leases)
    local names = {}
    for _, id in ipairs(ids) do
      local packed = packed_leases[id]
      if packed then
        local request_at = 11 + byte(packed, 10)
        names[#names + 1] = sub(packed, request_at, string.find(packed, '\0', request_at, true) - 1)
      end
    end
    read_slots(names)
  end

  local function lease_of(id)
    if ended[id] then
      return nil
    end
    local packed = packed_leases[id]
    if packed == nil then
      packed = call('HGET', LEASES, id)
    end
    if not packed then
      return nil
    end
    local request_at = 11 + byte(packed, 10)
    return {
      id = id, fetch_ended = sub(packed, 1, 1) == '1', granted_at = struct.unpack('<d', packed, 2),
      worker = sub(packed, 11, request_at - 1), request = sub(packed, request_at),
    }
  end

  local function write_lease(lease)
    local packed = (lease.fetch_ended and '1' or '0') .. pack('<d', lease.granted_at) .. string.char(#lease.worker)
      .. lease.worker .. lease.request
    packed_leases[lease.id] = packed
    to_leases[#to_leases + 1] = lease.id
    to_leases[#to_leases + 1] = packed
  end

  -- End a lease. The caller stores its request elsewhere: queued, delayed or dead.
  local function end_lease(lease)
    is_active = true
    ended[lease.id] = true
    ended_ids[#ended_ids + 1] = lease.id
    local name, key, rest = split(lease.request)
    local slot = slot_of(name)
    slot.leased = slot.leased - 1
    slot.touched = true
    if not lease.fetch_ended then
      slot.in_flight = slot.in_flight - 1 -- its fetch may or may not have ended
    end
    return name, key, rest
  end

  -- Visits of pages that the job remembers; docs/design/revisiting.md. Format: pass(4) change(1) status(2) since(4)
  -- listing-length(4) listing memory. The listing is read by redis/records.py.
  local UNCHANGED, GONE, UNCHECKED = 3, 4, 5 -- codes of changes

  local function pass_now()
    return recrawls + 1
  end

  -- Whether a visit is valid: pages that an earlier pass found gone, or did not find, are forgotten.
  local function is_valid(visit)
    local met, change = struct.unpack('>I4B', visit)
    return met == pass_now() or met == pass_now() - 1 and change ~= GONE
  end

  -- visit: code of the change, status, listing and memory in one string, or nil: those stored before stay; fingerprint of
  -- the page, or nil: that of the request. An unchanged page has no listing: the one stored before stays.
  local function remember(rest, visit)
    if not config.remembers or byte(rest, 5) == 0 and not visit[4] then
      return
    end
    local fingerprint, tail = visit[4] or sub(rest, 6, 21), visit[3]
    if tail and visit[1] ~= UNCHANGED then
      tail = pack('>I4', pass_now()) .. tail
    else
      local before = call('HGET', VISITS, fingerprint)
      if not before or not is_valid(before) then
        return
      end
      tail = tail and sub(before, 8, 15 + struct.unpack('>I4', before, 12)) .. tail or sub(before, 8)
    end
    call('HSET', VISITS, fingerprint, pack('>I4BI2', pass_now(), visit[1], visit[2]) .. tail)
  end

  -- Format of a dead letter: number(6) time(8, double) error-length(4) error request. If its fingerprint is forgotten, so that
  -- the request may be added again, its dedup byte is 2.
  local function mark_dead(name, key, rest, reason)
    if config.refetch_failed and byte(rest, 5) == 1 then
      forget(sub(rest, 6, 21))
      rest = sub(rest, 1, 4) .. '\2' .. sub(rest, 6)
    end
    remember(rest, {UNCHECKED, 0}) -- so that the page does not count as unlinked
    call('ZADD', DEAD, 0, next_number() .. pack('<d', now) .. pack('>I4', #reason) .. reason
      .. name .. '\0' .. key .. rest)
  end

  -- The worker is dead or silent: return its request with one more lost lease.
  local function lose_lease(lease)
    local name, key, rest = end_lease(lease)
    local attempt, lost = struct.unpack('>I2I2', rest)
    lost = min(lost + 1, 65535)
    rest = pack('>I2I2', attempt, lost) .. sub(rest, 5)
    count('leases/lost', 1)
    if lost > config.max_worker_crashes then
      count('failed/lost', 1)
      local workers = lost == 1 and 'worker was' or 'workers were'
      mark_dead(name, key, rest, format('lost: %d %s lost with this request', lost, workers))
    else
      -- Requests that may kill workers are spread out in time, so that one of them does not affect the others.
      enqueue_again(name, key, rest, lost > 1 and now + random() * 2 ^ lost or now)
    end
  end

  -- Queue delayed requests that are due, and reclaim expired leases. Returns whether some are left.
  local function queue_due()
    local due, late = due_of(DELAYED, 'delayed'), due_of(DEADLINES, 'deadlines')
    for _, request in ipairs(due) do
      local name, key = split(request)
      local slot, refusal = slot_of(name), spent(name)
      slot.delayed = max(0, slot.delayed - 1)
      slot.touched = true
      if refusal then
        count(refusal, 1)
      else
        enqueue(request, slot, key, now)
      end
    end
    read_leases(late)
    for _, id in ipairs(late) do
      local lease = lease_of(id)
      if lease then
        lose_lease(lease)
      end
    end
    return refuse_spent() or #due == BATCH_SIZE or #late == BATCH_SIZE
  end

  -- Remove dead letters: those with the given numbers, or the first ones up to a number. Returns their requests and numbers.
  local function take_dead(numbers, last)
    local letters = {}
    if numbers then
      for _, number in ipairs(numbers) do
        local first, after = '[' .. pack('>I6', number), '(' .. pack('>I6', number + 1)
        local found = call('ZRANGE', DEAD, first, after, 'BYLEX')
        if found[1] then
          call('ZREM', DEAD, found[1])
          letters[#letters + 1] = found[1]
        end
      end
    else
      letters = call('ZRANGE', DEAD, '-', '(' .. pack('>I6', last + 1), 'BYLEX', 'LIMIT', 0, BATCH_SIZE)
      call_with_many('ZREM', DEAD, letters)
    end
    local taken_numbers = {}
    for i, letter in ipairs(letters) do
      local error_length = struct.unpack('>I4', letter, 15)
      taken_numbers[i] = struct.unpack('>I6', letter)
      count('settled/' .. string.match(sub(letter, 19, 18 + error_length), '^[^:]*'), 1)
      letters[i] = sub(letter, 19 + error_length)
    end
    return letters, taken_numbers
  end

  -- Make the fingerprints of all unfinished requests known.
  local function learn_unfinished()
    local function learn_request(request)
      local _, _, rest = split(request)
      if byte(rest, 5) == 1 then
        learn(sub(rest, 6, 21))
      end
    end
    for _, key in ipairs({QUEUE, DELAYED}) do
      for first = 0, call('ZCARD', key) - 1, BATCH_SIZE do
        for _, request in ipairs(call('ZRANGE', key, first, first + BATCH_SIZE - 1)) do
          learn_request(request)
        end
      end
    end
    for _, packed in ipairs(call('HVALS', LEASES)) do
      learn_request(sub(packed, 11 + byte(packed, 10)))
    end
  end

  -- Begin the pass that the first partition has begun before. Requests may have been added here in the meantime: they stay
  -- known, because they belong to the new pass.
  local function follow_recrawl(of_first)
    if recrawls >= of_first then
      return
    end
    if not config.visited_ttl then
      forget_all()
      learn_unfinished()
    end
    if config.remembers then
      call('UNLINK', OUTPUTS)
    end
    recrawls = of_first
    set_in_job('recrawls', text(recrawls))
    call('HINCRBY', JOB, 'revision', 1) -- as in recrawl.lua
  end

  -- Write the requests that the script has moved.
  local function settle()
    call_with_many('HSET', LEASES, to_leases)
    call_with_many('HDEL', LEASES, ended_ids)
    call_with_many('ZREM', DEADLINES, ended_ids)
    call_with_many('ZREM', GRANTED, ended_ids)
    call_with_many('ZREM', QUEUE, from_queue)
    call_with_many('ZADD', QUEUE, to_queue)
    call_with_many('ZADD', DELAYED, to_delayed)
    to_leases, ended_ids, from_queue, to_queue, to_delayed = {}, {}, {}, {}, {}
    reschedule_slots()
  end

  -- Add to the counters of the job. Two commands suffice for any number of counters.
  local function write_counters()
    local names, before, after = {}, {}, {}
    for name in pairs(counted) do
      names[#names + 1] = name
    end
    get_many(COUNTERS, names, before)
    for _, name in ipairs(names) do
      after[#after + 1] = name
      after[#after + 1] = format('%.0f', (before[name] or 0) + counted[name])
    end
    call_with_many('HSET', COUNTERS, after)
  end

  -- Write everything, and store the reply in case that the call is repeated.
  local function finish(reply)
    settle()
    write_slots()
    write_seen()
    write_counters()
    keep_floors()
    if sequence ~= first_sequence then
      set_in_job('sequence', text(sequence))
    end
    if is_active and config.wait_for_seeds then
      set_in_job('active_at', text(now))
    end
    if finished_requests > 0 then
      set_in_job('done', format('%.0f', meta[10] + finished_requests))
    end
    call_with_many('HSET', JOB, job_fields)
    if ARGV[4] ~= '' then
      call('HSET', ANSWERS, ARGV[3], ARGV[4] .. pack('<d', now) .. reply)
    end
    return reply
  end

  return split, is_banned, enqueue_again, insert, report, put_outbox, dequeue, read_leases, lease_of, write_lease,
    end_lease, GONE, is_valid, remember, mark_dead, lose_lease, queue_due, take_dead, follow_recrawl, settle,
    finish
end)()
