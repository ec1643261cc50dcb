-- workers: return the live workers, each as seconds since its report(8, double), report.
local alive = {}
for _, worker in ipairs(call('HVALS', WORKERS)) do
  local heard, till = struct.unpack('<dd', worker)
  if till > now then
    alive[#alive + 1] = pack('<d', now - heard) .. sub(worker, 17)
  end
end
return alive
