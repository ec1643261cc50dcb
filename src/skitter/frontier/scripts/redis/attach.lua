-- attach: join an existing job. Runs without the prelude.
-- ARGV: format
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {'none'}
end
local job = kind == 'hash' and redis.call('HMGET', KEYS[1], 'format', 'generation', 'fingerprint_seed',
  'fingerprint_version', 'begun_with', 'changes', 'complete', 'recrawls') or {}
if not job[1] then
  return {'foreign'}
elseif job[1] ~= ARGV[1] then
  return {'format', job[1]}
end
return {'ok', job[2], job[3], job[4], job[5], job[6], job[7] or '0', job[8] or '0'}
