-- workers: those of which was heard lately, each as seconds since then(8, double) report.
local alive = {}
for _, worker in ipairs(call('HVALS', WORKERS)) do
  local heard, till = struct.unpack('<dd', worker)
  if till > now then
    alive[#alive + 1] = pack('<d', now - heard) .. sub(worker, 17)
  end
end
return alive
