-- set_delay: set the minimum delay of a slot (Crawl-delay), counted from the robots.txt just read.
-- ARGV: 5 slot, 6 policy, 7 seconds
begin(false)
local slot, seconds = slot_of(ARGV[5], tonumber(ARGV[6])), tonumber(ARGV[7])
local was = slot.min_delay
slot.min_delay = seconds
if seconds > was then
  slot.next_at = max(slot.next_at, now + seconds + (start_within(slot) or 0))
  slot.granted_at = 0
end
slot.touched = true
return finish('')
