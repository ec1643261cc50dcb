-- pause_slot: give out nothing of a slot for so long.
-- ARGV: 5 slot, 6 policy, 7 seconds
begin(false)
local slot = slot_of(ARGV[5], tonumber(ARGV[6]))
slot.held_until = max(slot.held_until, now + tonumber(ARGV[7]))
slot.touched = true
return finish('')
