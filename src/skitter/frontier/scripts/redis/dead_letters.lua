-- dead_letters: list dead letters after a number, oldest first.
-- ARGV: 5 number, 6 maximum number
return call('ZRANGE', DEAD, '[' .. pack('>I6', tonumber(ARGV[5]) + 1), '+', 'BYLEX', 'LIMIT', 0, ARGV[6])
