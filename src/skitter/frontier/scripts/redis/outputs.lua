-- outputs: return the committed byte ranges of all part files. The field of the last range of a part is the name of the
-- part; the field of an earlier range is name \0 start.
return call('HGETALL', OUTPUTS)
