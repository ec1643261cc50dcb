-- complete: note that all partitions of the job exist. A partition that is missing later was lost.
begin(false)
call('HSET', JOB, 'complete', '1')
return 1
