-- abandon: reclaim all leases of a dead worker, count a lost lease for each request, and free its batches of seeds. Returns the
-- number of leases.
-- ARGV[5]: worker
begin(false)
remove_worker(ARGV[5])
local lost = 0
local cursor = '0'
repeat
  local page = call('HSCAN', LEASES, cursor, 'COUNT', 1000)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local lease = lease_of(page[2][i])
    if lease and lease.worker == ARGV[5] then
      lose_lease(lease)
      lost = lost + 1
    end
  end
until cursor == '0'
finish('')
return lost
