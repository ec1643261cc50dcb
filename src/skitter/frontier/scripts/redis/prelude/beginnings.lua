-- Prelude 2: the beginnings of ordered sets.
--
-- A server that keeps its data on disk (ON_DISK) steps over what was taken from the beginning of a set, one by one, whenever
-- it reads from there, until it has tidied its files up. There the scripts keep, in field 'floors' of the job, from where
-- on there may be something in a set: a floor is raised when the first is read, and lowered by what comes in before it.
-- Floors of sets by time are times, by the set's name. Those of READY_BY_QUEUE are time(8, double) head, by 'ready ' and the
-- queue, and nil where there is nothing. Slots that were never asked come in at any moment with the time 0, before all that
-- was taken since the beginning: they stand in READY, in the same form, with floors by 'new ' and the queue.
local floors = ON_DISK and (meta[9] and decode(meta[9]) or {})
local floors_changed = false
local A_MOMENT = 0.001 -- a time may be rounded on its way through the server as text

local function comes_before(key, other)
  -- Not key < other: Lua compares texts by the rules of a language.
  local a1, a2, a3 = struct.unpack('>I4I4I6', key)
  local b1, b2, b3 = struct.unpack('>I4I4I6', other)
  if a1 ~= b1 then
    return a1 < b1
  elseif a2 ~= b2 then
    return a2 < b2
  end
  return a3 < b3
end

-- All that is in a set comes at this time or later.
local function raise_floor(set, at)
  if floors and (not floors[set] or at > floors[set]) then
    floors[set] = at
    floors_changed = true
  end
end

-- Something comes into a set at this time.
local function lower_floor(set, at)
  if floors and floors[set] and at < floors[set] then
    floors[set] = at
    floors_changed = true
  end
end

-- The first members of a set up to now, at most AT_ONCE; to be removed at once.
local function due_of(key, set)
  local from = floors and floors[set] and text(floors[set]) or '-inf'
  local due = call('ZRANGE', key, from, text(now), 'BYSCORE', 'LIMIT', 0, AT_ONCE)
  if #due < AT_ONCE then
    raise_floor(set, now)
  end
  call_with_many('ZREM', key, due)
  return due
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

-- The first of a queue in READY_BY_QUEUE, or a set like it, from some bytes on, as time(8, double) head name.
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

-- The slot of a queue that is ready first; nil if there is none.
local function first_ready_of(queue)
  if not floors then
    return first_from(READY_BY_QUEUE, queue, '')
  end
  local never_asked = call('ZCARD', READY) > 0 and first_above_floor(READY, 'new ' .. queue, queue)
  return never_asked or first_above_floor(READY_BY_QUEUE, 'ready ' .. queue, queue)
end

-- The set of those that are ready which has those of a time, where floors are kept.
local function ready_since(at)
  return at == 0 and READY or READY_BY_QUEUE
end

-- A slot becomes ready: by its time, then by its head.
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
