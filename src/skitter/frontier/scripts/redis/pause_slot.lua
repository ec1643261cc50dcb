-- pause_slot: lease nothing from a slot for some time.
-- ARGV: 5 slot, 6 policy, 7 seconds
begin(false)
local slot = slot_of(ARGV[5], tonumber(ARGV[6]))
slot.paused_until = max(slot.paused_until, now + tonumber(ARGV[7]))
slot.touched = true
return finish('')
