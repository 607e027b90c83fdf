--[[
iScheduler's submit-time guard: before sbatch or salloc hands a job to Slurm, its size is shown to the service, which may warn
or (where the site allows it) correct. It never blocks: when the service is away, slow or wrong, the job goes on unchanged.

Install: CliFilterPlugins=lua in slurm.conf; this file, `ischeduler-guard` and `guard.conf` beside slurm.conf. How and why:
docs/how-to/guard-submissions.md. A user switches it off with ISCHED_GUARD=off.

Lua has no HTTP and no exec with an argument list, so the job's fields go to the helper through a private file that os.tmpname
makes (mkstemp, mode 600); the one shell line holds that checked name and the helper's own checked path, never a word of the user's.
]]

local SENT = {  -- what the service is shown: sizes and places, never the command line or the environment
  "partition", "time", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "gres", "gpus",
  "gpus-per-node", "gpus-per-task", "account", "qos", "job-name", "array",
}
local MAY_SET = { time = "^[%d:%-]+$", partition = "^[%w_.-]+$" }  -- what an answer may change, and what it must look like
local LONGEST_FIELD, LONGEST_LINE, MOST_LINES = 200, 400, 8

local function folder()
  local here = debug.getinfo(1, "S").source:match("^@(/[%w_./-]+)/[^/]+$")
  return here
end

local function json_text(value)  -- control characters and everything beyond ASCII are replaced: a name is only compared
  local plain = value:sub(1, LONGEST_FIELD):gsub("[%c\128-\255]", "?"):gsub('[\\"]', "\\%0")
  return '"' .. plain .. '"'
end

local function described(options)
  local parts = {}
  for _, key in ipairs(SENT) do
    local value = options[key]
    if type(value) == "string" and value ~= "" and value ~= "unset" then
      parts[#parts + 1] = json_text(key) .. ":" .. json_text(value)
    end
  end
  return '{"schema":"isched.guard/1","job":{' .. table.concat(parts, ",") .. "}}"
end

local function ask(text)
  local here = folder()
  local scratch = os.tmpname()
  if not here or not scratch:match("^/tmp/lua_%w+$") then
    return {}
  end
  local file = io.open(scratch, "w")
  if not file then
    return {}
  end
  file:write(text)
  file:close()
  local lines = {}
  local pipe = io.popen("'" .. here .. "/ischeduler-guard' '" .. scratch .. "' 2>/dev/null", "r")
  if pipe then
    for line in pipe:lines() do
      if #lines < MOST_LINES then
        lines[#lines + 1] = line:sub(1, LONGEST_LINE)
      end
    end
    pipe:close()
  end
  os.remove(scratch)
  return lines
end

local function apply(options, line)  -- "say WORDS" or "set KEY VALUE"
  local words = line:match("^say (.+)$")
  if words then
    slurm.log_info("ischeduler: %s", (words:gsub("[%c\128-\255]", "?")))
    return
  end
  local key, value = line:match("^set ([%w-]+) (%S+)$")
  if key and MAY_SET[key] and value:match(MAY_SET[key]) then
    options[key] = value
  end
end

local function wanted(options)
  local kind, name = options["type"], options["job-name"] or ""
  if kind ~= "sbatch" and kind ~= "salloc" then
    return false  -- a step, or a job of one command: sized by hand a moment ago
  end
  if os.getenv("ISCHED_GUARD") == "off" or os.getenv("SLURM_JOB_ID") then
    return false
  end
  return name:sub(1, 7) ~= "isched-"  -- the plane's own jobs were sized by the service itself
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  pcall(function()
    if wanted(options) then
      for _, line in ipairs(ask(described(options))) do
        apply(options, line)
      end
    end
  end)
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
  return slurm.SUCCESS
end
