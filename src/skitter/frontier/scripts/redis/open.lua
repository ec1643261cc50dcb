-- open: create the job, or join it. Runs without the prelude.
-- ARGV: 1 format, 2 new generation, 3 new fingerprint seed, 4 fingerprint version, 5 config, 6 rules, 7 kind of visits,
--       8 changes that the config includes, 9 stored configuration, 10 shape of a partition ('' for an undivided job),
--       11 '1' if it must exist, 12 '1' if this partition loads no seeds, 13 the setting 'changes'
local JOB = KEYS[1]
local kind = redis.call('TYPE', JOB).ok
if kind == 'none' then
  if ARGV[11] == '1' or redis.call('EXISTS', unpack(KEYS)) > 0 then
    return {'headless'}
  end
  redis.call('HSET', JOB, 'format', ARGV[1], 'generation', ARGV[2], 'fingerprint_seed', ARGV[3],
    'fingerprint_version', ARGV[4], 'config', ARGV[5], 'rules', ARGV[6], 'next_rules', ARGV[6], 'visits', ARGV[7], 'sequence', '0',
    'changes', ARGV[8], 'revision', '0', 'begun_with', ARGV[9], 'shape', ARGV[10],
    'state', 'running', 'done', '0', 'seeds_done', ARGV[12], 'seed_position', '0',
    'remembers', ARGV[13])
  return {'ok', ARGV[2], ARGV[3], ARGV[4], '0', '0', '0', ARGV[9]}
end
local job = kind == 'hash' and redis.call('HMGET', JOB, 'format', 'generation', 'fingerprint_seed',
  'fingerprint_version', 'rules', 'visits', 'changes', 'shape', 'complete', 'recrawls', 'remembers', 'begun_with') or {}
if not job[1] then
  return {'foreign'}
elseif job[1] ~= ARGV[1] then
  return {'format', job[1]}
elseif job[6] ~= ARGV[7] then
  return {'visits', job[6]}
elseif job[11] ~= ARGV[13] then
  return {'mode', job[11]}
elseif (job[8] or '') ~= ARGV[10] then
  return {'shape', job[8] or ''}
elseif job[7] ~= ARGV[8] then
  return {'changed', job[7]}
end
redis.call('HDEL', JOB, 'active_at', 'grows') -- a full server lets workers join
redis.call('HSET', JOB, 'config', ARGV[5], 'next_rules', ARGV[6], 'begun_with', ARGV[9])
if job[5] ~= ARGV[6] then -- assign_policies writes 'rules' at its end: this process may die before it
  redis.call('HINCRBY', JOB, 'revision', 1) -- so that other workers read them
end
return {'ok', job[2], job[3], job[4], job[5] == ARGV[6] and '0' or '1', job[9] or '0', job[10] or '0', job[12]}
