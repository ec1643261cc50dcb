-- abandon: reclaim all leases of a dead worker, and count a lost lease for each request. Returns their number.
-- ARGV[5]: worker
begin(false)
if call('HGET', JOB, 'seed_worker') == ARGV[5] then
  call('HDEL', JOB, 'seed_token', 'seed_worker', 'seed_deadline')
end
call('HDEL', WORKERS, ARGV[5])
call('ZREM', ALIVE, ARGV[5], '?' .. ARGV[5])
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
