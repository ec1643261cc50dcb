-- last_dead_letter: return the number of the last dead letter; 0 if there is none.
local last = call('ZRANGE', DEAD, -1, -1)[1]
return last and text(struct.unpack('>I6', last)) or '0'
