-- assign_policies: set the policies of slots after the rules of the job were changed.
-- ARGV[5]: names (slot, policy, whether its delay is longer than before)
begin(false)
for _, name in ipairs(decode(ARGV[5])) do
  local slot = slot_of(name[1], name[2])
  local again = now + delay_of(slot) + slot.limits.jitter + (start_within(slot) or 0)
  slot.next_at = (name[3] and max or min)(slot.next_at, again)
  slot.granted_at = 0
  slot.touched = true
end
return finish('')
