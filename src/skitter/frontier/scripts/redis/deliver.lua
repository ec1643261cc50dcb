-- deliver: add requests that came from other partitions, each once however often it is delivered. Returns how many
-- were new, and how many refused.
-- ARGV: 5 '1' if they may have been delivered before, 6 names, entries, ids
begin(true)
local names, entries, ids = unpack(decode(ARGV[6]))
local fresh = {}
for i, entry in ipairs(entries) do
  -- What becomes known and stays so cannot be added twice anyhow.
  local may_be_forgotten = byte(entry[3], 5) == 0 or config.visited_ttl or config.refetch_failed
  if not may_be_forgotten or call('ZADD', DELIVERED, 'NX', text(now), ids[i]) == 1 then
    fresh[#fresh + 1] = entry
  end
end
local added, refused = insert(names, fresh, ARGV[5] == '1')
finish('')
return {added, refused}
