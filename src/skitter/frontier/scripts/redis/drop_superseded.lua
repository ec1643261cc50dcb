-- drop_superseded: delete dead letters whose request was added again since.
-- Returns the number of the last letter looked at, or 0 if there was none, and how many were deleted.
-- ARGV: 5 number of the letter after which to begin
begin(false)
local forgotten_to = tonumber(call('HGET', JOB, 'forgotten_to') or 0)
local letters = call('ZRANGE', DEAD, '[' .. pack('>I6', tonumber(ARGV[5]) + 1), '+', 'BYLEX', 'LIMIT', 0, BATCH_SIZE)
local last, superseded = 0, {}
for _, letter in ipairs(letters) do
  last = struct.unpack('>I6', letter)
  local error_length = struct.unpack('>I4', letter, 15)
  local _, _, rest = split(sub(letter, 19 + error_length))
  local mark = byte(rest, 5)
  local may_be_added = mark == 2 or (mark == 1 and last <= forgotten_to)
  if may_be_added and is_known(sub(rest, 6, 21)) then
    superseded[#superseded + 1] = last
  end
end
local dropped = #take_dead(superseded, 0)
return finish(text(last) .. ' ' .. dropped)
