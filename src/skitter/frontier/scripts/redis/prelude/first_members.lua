-- Prelude 2: the first members of sorted sets.
--
-- A server that keeps its data on disk (ON_DISK) skips removed members one by one whenever it reads the first members of a set,
-- until it has compacted its files. For such a server the field 'floors' of the job says from where on a set may have
-- members: reading the first member raises the floor, adding a member before it lowers the floor.
-- The floor of a set by time is a time, by the name of the set. Floors of READY_BY_QUEUE are time(8, double) head, by 'ready '
-- and the queue, and nil without members. Slots that were never leased from come at any moment with the time 0, before all
-- members removed so far: they are in READY, in the same form, with floors by 'new ' and the queue.
local floors, comes_before, record_member, first_of, due_of, first_time_of, first_ready_of, ready_since, lower_ready,
  keep_floors = (function()
  local floors = ON_DISK and (meta[9] and decode(meta[9]) or {})
  local floors_changed = false
  local A_MOMENT = 0.001 -- the server may round a time that it gets as text
  local first_times = {} -- by the name of a set: the time of its first member, infinite without one; absent: not known

  local function comes_before(key, other)
    -- Not key < other: Lua compares strings by the locale.
    local a1, a2, a3 = struct.unpack('>I4I4I6', key)
    local b1, b2, b3 = struct.unpack('>I4I4I6', other)
    if a1 ~= b1 then
      return a1 < b1
    elseif a2 ~= b2 then
      return a2 < b2
    end
    return a3 < b3
  end

  -- All members of a set have this time or a later one.
  local function raise_floor(set, at)
    if floors and (not floors[set] or at > floors[set]) then
      floors[set] = at
      floors_changed = true
    end
  end

  -- A set gets a member with this time.
  local function record_member(set, at)
    if first_times[set] and at < first_times[set] then
      first_times[set] = at
    end
    if floors and floors[set] and at < floors[set] then
      floors[set] = at
      floors_changed = true
    end
  end

  -- The first member of a set and its time, both nil if there is none.
  local function first_of(key, set)
    local first
    if floors and floors[set] then
      first = call('ZRANGE', key, text(floors[set]), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    else
      first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    end
    if first[1] then
      raise_floor(set, tonumber(first[2]) - A_MOMENT)
    end
    return first[1], first[2]
  end

  -- Remove and return the members of a set up to now, at most BATCH_SIZE.
  local function due_of(key, set)
    local _, first = first_of(key, set)
    if not first then
      raise_floor(set, now)
    end
    first_times[set] = first and tonumber(first) or math.huge
    if first_times[set] > now then
      return {}
    end
    first_times[set] = nil
    local from = floors and floors[set] and text(floors[set]) or '-inf'
    local due = call('ZRANGE', key, from, text(now), 'BYSCORE', 'LIMIT', 0, BATCH_SIZE)
    if #due < BATCH_SIZE then
      raise_floor(set, now)
    end
    call_with_many('ZREM', key, due)
    return due
  end

  -- The time of the first member of a set, as text; '' without members. Call it after everything is written, and only if no
  -- member was removed since due_of().
  local function first_time_of(key, set)
    if not first_times[set] then
      local _, first = first_of(key, set)
      return first or ''
    end
    return first_times[set] < math.huge and text(first_times[set]) or ''
  end

  -- The first member of a queue in READY_BY_QUEUE or a similar set, from some bytes on, as time(8, double) head name.
  local function first_from(key, queue, from)
    local first = call('ZRANGE', key, '[' .. queue .. '\0' .. from, '(' .. queue .. '\1', 'BYLEX', 'LIMIT', 0, 1)[1]
    return first and sub(first, #queue + 2)
  end

  local function set_floor(set, floor)
    if floors[set] ~= floor then
      floors[set] = floor
      floors_changed = true
    end
  end

  local function first_above_floor(key, set, queue)
    local first = floors[set] and first_from(key, queue, floors[set])
    set_floor(set, first and sub(first, 1, 22) or nil)
    return first
  end

  -- The first ready slot of a queue; nil if there is none. prefers_asked: if possible, one that was leased from before.
  local function first_ready_of(queue, prefers_asked)
    local new, asked
    if floors then
      new = call('ZCARD', READY) > 0 and first_above_floor(READY, 'new ' .. queue, queue)
      asked = (prefers_asked or not new) and first_above_floor(READY_BY_QUEUE, 'ready ' .. queue, queue)
    else
      new = first_from(READY_BY_QUEUE, queue, '')
      if not prefers_asked or not new or struct.unpack('>d', new) > 0 then
        return new
      end
      asked = first_from(READY_BY_QUEUE, queue, '\0\0\0\0\0\0\0\1')
    end
    local is_ready = asked and struct.unpack('>d', asked) <= now
    return (is_ready or not new) and asked or new or nil
  end

  -- The set for ready slots with a time, if floors are kept.
  local function ready_since(at)
    return at == 0 and READY or READY_BY_QUEUE
  end

  -- Lower the floor for a slot that becomes ready.
  local function lower_ready(queue, at, head)
    local set = (at == 0 and 'new ' or 'ready ') .. queue
    local lowest = floors[set] and struct.unpack('>d', floors[set])
    if not lowest or at < lowest or at == lowest and comes_before(head, sub(floors[set], 9)) then
      set_floor(set, pack('>d', at) .. head)
    end
  end

  local function keep_floors()
    if floors_changed then
      call('HSET', JOB, 'floors', cmsgpack.pack(floors))
      floors_changed = false
    end
  end

  return floors, comes_before, record_member, first_of, due_of, first_time_of, first_ready_of, ready_since,
    lower_ready, keep_floors
end)()
