-- assign_policies: set the policies of slots after the rules of the job were changed.
-- ARGV: 5 names (slot, policy, whether its delay is longer than before), 6 the rules, 7 '1' for the last call
begin(false)
if call('HGET', JOB, 'next_rules') ~= ARGV[6] then
  return finish('') -- another process has changed them since
end
for _, name in ipairs(decode(ARGV[5])) do
  local slot = slot_of(name[1], name[2])
  local again = now + delay_of(slot) + slot.limits.jitter + (start_within(slot) or 0)
  slot.next_at = (name[3] and max or min)(slot.next_at, again)
  slot.granted_at = 0
  slot.touched = true
end
if ARGV[7] == '1' then
  set_in_job('rules', ARGV[6])
end
return finish('')
