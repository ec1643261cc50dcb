-- outputs: the committed byte ranges of all part files. The last range of a part is under the part's name, an
-- earlier one under name \0 start.
return call('HGETALL', OUTPUTS)
