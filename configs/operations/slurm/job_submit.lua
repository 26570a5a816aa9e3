-- job_submit.lua of Slurm: asks `twin serve` about jobs with a comment `twin:MODEL`; every job goes through.
-- Where the site has a job_submit.lua already, put the lines marked (1) and (2) into it.

local twin = dofile("/etc/slurm/twin_submit.lua")                          -- (1)
twin.settings.url = "http://127.0.0.1:8712"
-- twin.settings.header_file = "/etc/slurm/twin_header"  -- one line: Authorization: Bearer TOKEN (role read)
-- twin.settings.gpus_per_node = 8                       -- lets it choose nodes and tasks too
-- twin.settings.partitions = { ["us-east-1"] = "east" } -- partition of a domain, where the job names none

function slurm_job_submit(job_desc, part_list, submit_uid)
  twin.submit(slurm, job_desc)                                             -- (2)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
