-- Prelude 3: slots. The results are the same as in frontier/embedded/scheduler.py.
local without_queue, record_queue, policy_of_queue, budgets, usage_of, spent, record_spent, refuse_spent, read_slots,
  slot_of, delay_of, status_of, start_within, ready_at, has_capacity, kept_for, reschedule, reschedule_slots, write_order, grant,
  end_fetch, write_slots = (function()
  local ADAPTIVE_SHARE, ADAPTIVE_CAP, FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 60, 1, 300
  local CONNECTIONS_PER_GRACE, CONNECTING_KEPT, LONGEST_CONNECTING = 2, 0.98, 10
  local MIN_GRACE, MAX_GRACE = 0.02, 1
  local AFFINITY_SHARE, MAX_AFFINITY, MIN_AFFINE_DELAY = 0.1, 1, 0.2
  local slots = {} -- those that this script has read

  -- The queue of a slot ('QUEUE|SLOT'); nil: the default queue.
  local function queue_of(name)
    local bar = string.find(name, '|', 1, true)
    return bar and sub(name, 1, bar - 1) or nil
  end

  -- The slot of the same host in the default queue.
  local function without_queue(name)
    local queue = queue_of(name)
    return queue and sub(name, #queue + 2) or name
  end

  local function record_queue(name)
    local queue = queue_of(name)
    if queue and not string.find(queues or '', ',' .. queue .. ',', 1, true) then
      queues = (queues or ',') .. queue .. ','
      call('HSET', JOB, 'queues', queues)
    end
  end

  -- The policy of a slot to which no rule applies.
  local function policy_of_queue(name)
    return config.queue_policies and config.queue_policies[queue_of(name) or 'default'] or 1
  end

  -- The limits of a slot with those of its domain; a rule overrides the limits of the domain.
  local function with_domain_limits(slot, limits)
    local domains = config.domain_limits
    if not domains or (slot.policy - 1) % config.policies_of_a_queue ~= 0 then
      return limits
    end
    local name = without_queue(slot.name)
    while name and not domains[name] do
      local dot = string.find(name, '.', 1, true)
      name = dot and sub(name, dot + 1)
    end
    local own = name and domains[name]
    return own and {delay = own.delay or limits.delay, jitter = own.jitter or limits.jitter,
      concurrency_per_slot = own.concurrency_per_slot or limits.concurrency_per_slot, rates = own.rates or limits.rates} or limits
  end

  -- Budgets of a slot. What a slot has used is in BY_HOST; usage adds the outcomes of this script.
  local budgets = config.slot_budgets
  local usage = {}

  local function usage_of(name)
    local used = usage[name]
    if not used then
      local packed = call('HGET', BY_HOST, name)
      used = {0, 0}
      if packed then
        local pages, _, bytes = struct.unpack('<ddd', packed)
        used = {pages, bytes}
      end
      usage[name] = used
    end
    return used
  end

  -- The counter of requests that a used up slot refuses; nil if it is not used up.
  local function spent(name)
    if not budgets or not (budgets.pages or budgets.bytes) then
      return nil
    end
    local used = usage_of(name)
    if budgets.pages and used[1] >= budgets.pages then
      return 'refused/slot_pages'
    elseif budgets.bytes and used[2] >= budgets.bytes then
      return 'refused/slot_bytes'
    end
  end

  -- Slots that are used up, but have requests; queue_due() removes these.
  local spent_slots = budgets and decode(call('HGET', JOB, 'spent') or '\144') or {}
  local spent_changed = false

  local function record_spent(name)
    for _, other in ipairs(spent_slots) do
      if other == name then
        return
      end
    end
    spent_slots[#spent_slots + 1] = name
    spent_changed = true
  end

  local packed_slots = {} -- those that read_slots() has read; false: there is none

  -- Read the slots with some names with one call.
  local function read_slots(names)
    local wanted = {}
    for _, name in ipairs(names) do
      if not slots[name] and packed_slots[name] == nil then
        packed_slots[name] = false
        wanted[#wanted + 1] = name
      end
    end
    get_many(SLOTS, wanted, packed_slots)
  end

  local function slot_of(name, policy)
    local slot = slots[name]
    if not slot then
      local packed = packed_slots[name]
      if packed == nil then
        packed = call('HGET', SLOTS, name)
      end
      if packed then
        local v = decode(packed)
        slot = {
          name = name, policy = v[1], next_at = v[2], paused_until = v[3], min_delay = v[4], adapted = v[5],
          backoff = v[6], refused_at = v[7], in_flight = v[8], queued = v[9], leased = v[10], head = v[11],
          listed_head = v[12], listed_at = v[13], connecting = v[14] or 0, granted_at = v[15] or 0, delayed = v[16] or 0,
          worker = v[17] or '', kept = v[18] or '',
        }
      else
        slot = {
          name = name, policy = policy_of_queue(name), next_at = 0, paused_until = 0, min_delay = 0, adapted = 0,
          backoff = 0, refused_at = 0, in_flight = 0, queued = 0, leased = 0, head = '',
          listed_head = '', listed_at = 0, connecting = 0, granted_at = 0, delayed = 0, worker = '', kept = '',
        }
      end
      slots[name] = slot
    end
    if policy and policy ~= slot.policy then
      slot.policy = policy
      slot.touched = true
    end
    slot.limits = with_domain_limits(slot, config.policies[slot.policy] or config.policies[1])
    return slot
  end

  local function packed_slot(s)
    return cmsgpack.pack({
      s.policy, s.next_at, s.paused_until, s.min_delay, s.adapted, s.backoff, s.refused_at, s.in_flight, s.queued,
      s.leased, s.head, s.listed_head, s.listed_at, s.connecting, s.granted_at,
      s.delayed, s.worker, s.kept,
    })
  end

  local function delay_of(slot)
    return max(slot.limits.delay or slot.adapted, slot.min_delay)
  end

  local function status_of(name)
    local slot = slot_of(name)
    return {name, slot.queued, slot.leased, text(delay_of(slot)), text(max(0, slot.paused_until - now))}
  end

  -- Seconds within which the request of a lease must be sent; nil if the slot has no promised delay.
  local function start_within(slot)
    local promised
    for _, rate in ipairs(slot.limits.rates) do
      promised = min(promised or rate[2] / rate[1], rate[2] / rate[1])
    end
    local distance = max(slot.limits.delay or 0, slot.min_delay)
    if distance > 0 then
      promised = min(promised or distance, distance)
    end
    return promised and max(MIN_GRACE, min(MAX_GRACE, 0.1 * promised), CONNECTIONS_PER_GRACE * slot.connecting)
  end

  local function grants_of(slot)
    slot.grants = slot.grants or call('HGET', GRANTS, slot.name) or ''
    return slot.grants
  end

  local function ready_at(slot)
    local at = max(slot.next_at, slot.paused_until)
    local rates = slot.limits.rates
    if #rates > 0 then
      local grants = grants_of(slot)
      for _, rate in ipairs(rates) do
        local oldest = #grants - 8 * rate[1]
        if oldest >= 0 then
          at = max(at, struct.unpack('<d', grants, oldest + 1) + rate[2])
        end
      end
    end
    return at
  end

  -- The beginning of the members of READY_BY_QUEUE for slots of a queue that are kept for a worker.
  local function kept_for(worker, queue)
    return '@' .. worker .. '|' .. queue .. '\0'
  end

  -- Seconds for which a slot, when it is ready, is kept for the worker that got the last response.
  local function affinity_of(slot)
    local delay = delay_of(slot)
    return slot.worker ~= '' and delay >= MIN_AFFINE_DELAY and min(MAX_AFFINITY, AFFINITY_SHARE * delay) or 0
  end

  -- READY holds slots of the default queue by the time from which any worker may lease from them. READY_BY_QUEUE holds slots of other queues as
  -- queue \0 time(8, double) head name: within a queue the order of the bytes is that of the times. If floors are kept, slots
  -- of the default queue have this form, too, because a time alone does not distinguish slots with the same time.
  -- READY_BY_QUEUE also holds a second member for each slot that is kept for a worker: slot.kept (with the time from which this
  -- worker may lease) head name. On a server that keeps its data on disk no slot is kept.
  local order_changes = {[READY] = {}, [READY_BY_QUEUE] = {}} -- the score of each changed member; false: it is removed

  local function put_in_order(slot, head, at)
    local queue = queue_of(slot.name)
    if floors then
      queue = queue or 'default'
      lower_ready(queue, at, head)
      order_changes[ready_since(at)][queue .. '\0' .. pack('>d', at) .. head .. slot.name] = 0
    elseif queue then
      order_changes[READY_BY_QUEUE][queue .. '\0' .. pack('>d', at) .. head .. slot.name] = 0
    else
      order_changes[READY][head .. slot.name] = at
    end
    if slot.kept ~= '' then
      order_changes[READY_BY_QUEUE][slot.kept .. head .. slot.name] = 0
    end
  end

  local function take_out_of_order(slot, head)
    local queue = queue_of(slot.name)
    if floors then
      local entry = (queue or 'default') .. '\0' .. pack('>d', slot.listed_at) .. slot.listed_head .. slot.name
      order_changes[ready_since(slot.listed_at)][entry] = false
    elseif queue then
      order_changes[READY_BY_QUEUE][queue .. '\0' .. pack('>d', slot.listed_at) .. slot.listed_head .. slot.name] = false
    elseif slot.listed_head ~= head then
      order_changes[READY][slot.listed_head .. slot.name] = false
    end
    if slot.kept ~= '' then
      order_changes[READY_BY_QUEUE][slot.kept .. slot.listed_head .. slot.name] = false
    end
  end

  -- Write what put_in_order() and take_out_of_order() have changed.
  local function write_order()
    for key, changes in pairs(order_changes) do
      local removed, added = {}, {}
      for member, score in pairs(changes) do
        if score then
          added[#added + 1] = score
          added[#added + 1] = member
        else
          removed[#removed + 1] = member
        end
      end
      call_with_many('ZREM', key, removed)
      call_with_many('ZADD', key, added)
      order_changes[key] = {}
    end
  end

  -- Whether the concurrency limit and the budgets allow one more lease.
  local function has_capacity(slot)
    if slot.in_flight >= slot.limits.concurrency_per_slot then
      return false
    elseif not budgets then
      return true
    elseif spent(slot.name) then
      return false
    end
    return not budgets.pages or usage_of(slot.name)[1] + slot.leased < budgets.pages
  end

  -- Update the position of a slot among the ready slots, after its next time may have changed.
  local function reschedule(slot)
    slot.touched = true
    local head = ''
    if slot.queued > 0 and has_capacity(slot) then
      head = slot.head
    end
    local at, kept = 0, ''
    if head ~= '' then
      local affinity = affinity_of(slot)
      at = ready_at(slot)
      kept = affinity > 0 and kept_for(slot.worker, queue_of(slot.name) or 'default') .. pack('>d', at) or ''
      at = at + affinity
    end
    if slot.listed_head ~= head or slot.listed_at ~= at or slot.kept ~= kept then
      if slot.listed_head ~= '' then
        take_out_of_order(slot, head)
      end
      slot.kept = kept
      if head ~= '' then
        put_in_order(slot, head, at)
      end
    end
    slot.listed_head, slot.listed_at = head, at
  end

  local function grant(slot)
    slot.in_flight = slot.in_flight + 1
    slot.leased = slot.leased + 1
    slot.granted_at = now
    local distance, jitter = delay_of(slot), slot.limits.jitter
    local grace = start_within(slot)
    local sent_by = now + (grace or 0)
    if distance > 0 or jitter > 0 then
      -- An adapted delay is an average, not a promise, so a late grant does not postpone the next one.
      local since = grace and sent_by or max(slot.next_at, now - distance)
      slot.next_at = since + distance + (jitter > 0 and random() * jitter or 0)
    else
      slot.next_at = now
    end
    local most = 0
    for _, rate in ipairs(slot.limits.rates) do
      most = max(most, rate[1])
    end
    if most > 0 then
      slot.grants = sub(grants_of(slot) .. pack('<d', sent_by), -8 * most)
      slot.has_granted = true
    end
  end

  local function back_off(slot, granted_at, retry_after)
    -- If several concurrent fetches are refused, the backoff doubles once.
    if granted_at > slot.refused_at or slot.backoff == 0 then
      slot.backoff = min(max(FIRST_BACKOFF, slot.backoff * 2), LONGEST_BACKOFF)
      slot.refused_at = now
    end
    -- Retry-After: 0 does not disable the backoff.
    slot.paused_until = max(slot.paused_until, now + max(slot.backoff, retry_after or 0))
  end

  -- Undo the last grant, because its request was not sent: another one may be sent now.
  local function undo_grant(slot, granted_at)
    slot.next_at = granted_at
    if #slot.limits.rates > 0 then
      slot.grants = sub(grants_of(slot), 1, -9)
      slot.has_granted = true
    end
  end

  -- Record the end of a fetch, adapt the delay, and back off if the server asked for it.
  -- worker: the one for which the slot is kept if there was a response; '': for none.
  local function end_fetch(slot, granted_at, worker, latency, refused, retry_after, connecting, is_unsent)
    slot.in_flight = slot.in_flight - 1
    slot.touched = true
    if is_unsent and granted_at == slot.granted_at then
      undo_grant(slot, granted_at)
    end
    if refused then
      back_off(slot, granted_at, retry_after)
    elseif latency then
      if granted_at > slot.refused_at then
        slot.backoff = slot.backoff > FIRST_BACKOFF and slot.backoff / 2 or 0
      end
      if not slot.limits.delay then
        local target = min(latency * ADAPTIVE_SHARE, ADAPTIVE_CAP)
        slot.adapted = slot.adapted > 0 and (slot.adapted + target) / 2 or target
      end
      slot.worker = not floors and delay_of(slot) >= MIN_AFFINE_DELAY and worker or ''
    end
    local kept = latency and slot.connecting * CONNECTING_KEPT or slot.connecting
    slot.connecting = min(LONGEST_CONNECTING, max(connecting or 0, kept))
    if slot.in_flight == 0 and slot.limits.jitter == 0 and ((slot.limits.delay or 0) > 0 or slot.min_delay > 0) then
      -- All leased requests have been sent: the rest of the last start_within is not needed.
      slot.next_at = min(slot.next_at, now + delay_of(slot))
    end
  end

  -- Remove requests of slots that are used up, at most BATCH_SIZE. Returns whether some are left.
  local function refuse_spent()
    local left = BATCH_SIZE
    while left > 0 and #spent_slots > 0 do
      local name = spent_slots[#spent_slots]
      local refusal, waiting = spent(name), {}
      if not refusal then -- the budget was raised since
        slot_of(name).touched = true
      else
        waiting = call('ZRANGE', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'BYLEX', 'LIMIT', 0, left)
        call_with_many('ZREM', QUEUE, waiting)
      end
      if #waiting > 0 then
        local slot = slot_of(name)
        local head = call('ZRANGE', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'BYLEX', 'LIMIT', 0, 1)[1]
        slot.queued = slot.queued - #waiting
        slot.head = head and sub(head, #name + 2, #name + 15) or ''
        slot.touched = true
        count(refusal, #waiting)
      end
      if #waiting < left then
        spent_slots[#spent_slots] = nil
        spent_changed = true
      end
      left = left - #waiting
    end
    return #spent_slots > 0
  end

  -- Update the positions of all slots that this script has changed.
  local function reschedule_slots()
    for _, slot in pairs(slots) do
      if slot.touched then
        reschedule(slot)
      end
    end
    write_order()
  end

  -- Call it after settle(), which updates the ready slots.
  local function write_slots()
    local states, busy, idle, grants = {}, {}, {}, {}
    for name, slot in pairs(slots) do
      if slot.touched then
        states[#states + 1] = name
        states[#states + 1] = packed_slot(slot)
        if slot.queued + slot.leased > 0 then
          busy[#busy + 1] = slot.queued
          busy[#busy + 1] = name
        else
          idle[#idle + 1] = name
        end
        if slot.has_granted then
          grants[#grants + 1] = name
          grants[#grants + 1] = slot.grants
        end
      end
    end
    call_with_many('HSET', SLOTS, states)
    call_with_many('ZADD', BUSY, busy)
    call_with_many('ZREM', BUSY, idle)
    call_with_many('HSET', GRANTS, grants)
    if spent_changed then
      call('HSET', JOB, 'spent', cmsgpack.pack(spent_slots))
    end
  end

  return without_queue, record_queue, policy_of_queue, budgets, usage_of, spent, record_spent, refuse_spent, read_slots,
    slot_of, delay_of, status_of, start_within, ready_at, has_capacity, kept_for, reschedule, reschedule_slots, write_order, grant,
    end_fetch, write_slots
end)()
