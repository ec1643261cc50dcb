-- change_settings: replace the changed settings. Returns 1, or 0 if another client has changed them since they were read.
-- ARGV: 5 changes before, 6 changes after, 7 config, 8 rules
begin(false)
if call('HGET', JOB, 'changes') ~= ARGV[5] then
  return finish('0')
end
call('HSET', JOB, 'changes', ARGV[6], 'config', ARGV[7], 'next_rules', ARGV[8])
call('HINCRBY', JOB, 'revision', 1)
return finish('1')
