-- Asks a running `twin serve` where a job would fit, and tells user and administrator its answer.
--
-- A job is asked about if its comment holds `twin:MODEL` or `twin:MODEL,tokens=N,KEY=VALUE`, KEYs those of `job`
-- in a scenario. The answer goes into `admin_comment` and to the user's terminal. A component of a heterogeneous
-- job, or a job whose plan lies in one domain, gets the domain as its feature where it names none itself.
--
-- No job is refused and none waits longer than `timeout_s`: without an answer it goes through as it is, which is
-- logged, and for `pause_s` nobody is asked. The controller holds locks meanwhile, so keep `timeout_s` small.
-- Lua 5.1 to 5.4, curl. Fields: Slurm, "Job Submit Plugin API" and src/plugins/job_submit/lua.

local twin = {}

twin.settings = {
  url = "http://127.0.0.1:8712",
  timeout_s = 2,
  pause_s = 30,
  header_file = nil,   -- file with the line `Authorization: Bearer TOKEN`, readable by SlurmUser alone
  ca_file = nil,       -- certificates that an https service is checked with; nil: those of the system
  place = true,        -- false: only comments
  features = {},       -- domain -> feature of its nodes; without an entry as `twin export --to slurm` writes it
  partitions = {},     -- domain -> partition, for jobs that name none
  gpus_per_node = nil, -- set: jobs that say neither nodes nor tasks get those of the plan
}

local LONGEST_ANSWER = 1048576
local LONGEST_COMMENT = 500
local LONGEST_SUBMISSION_S = 60 -- components of one job come closer together than this
local silent_until = 0
local opened = {}               -- user -> answer for the next component of a heterogeneous job


-- JSON ------------------------------------------------------------------------------------------------------

local ESCAPED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function utf8_of(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 0x40), 0x80 + code % 0x40) end
  if code >= 0xD800 and code < 0xE000 then return "?" end
  return string.char(0xE0 + math.floor(code / 0x1000), 0x80 + math.floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
end

local function string_at(text, start)
  local parts, at = {}, start + 1
  while true do
    local stop = text:find('[%c"\\]', at)
    if not stop then error("JSON: a text without end") end
    parts[#parts + 1] = text:sub(at, stop - 1)
    local mark = text:sub(stop, stop)
    if mark == '"' then return table.concat(parts), stop + 1 end
    if mark ~= "\\" then error("JSON: a control character in a text") end
    local kind = text:sub(stop + 1, stop + 1)
    if kind == "u" then
      local digits = text:match("^%x%x%x%x", stop + 2)
      if not digits then error("JSON: a wrong \\u") end
      parts[#parts + 1] = utf8_of(tonumber(digits, 16))
      at = stop + 6
    else
      parts[#parts + 1] = ESCAPED[kind] or kind
      at = stop + 2
    end
  end
end

local function after_space(text, at) return text:find("[^ \t\r\n]", at) or #text + 1 end

local value_at

-- Returns the members between two brackets; those of a list have the keys 1, 2, ...
local function members_at(text, at, last, named, depth)
  local found, count = {}, 0
  at = after_space(text, at + 1)
  if text:sub(at, at) == last then return found, at + 1 end
  while true do
    local key = count + 1
    if named then
      if text:sub(at, at) ~= '"' then error("JSON: a name is missing") end
      key, at = string_at(text, at)
      at = after_space(text, at)
      if text:sub(at, at) ~= ":" then error("JSON: a colon is missing") end
      at = at + 1
    end
    found[key], at = value_at(text, at, depth)
    count, at = count + 1, after_space(text, at)
    local mark = text:sub(at, at)
    at = after_space(text, at + 1)
    if mark == last then return found, at end
    if mark ~= "," then error("JSON: neither a comma nor an end") end
  end
end

function value_at(text, at, depth)
  if depth > 64 then error("JSON: nested too deep") end
  at = after_space(text, at)
  local mark = text:sub(at, at)
  if mark == "{" then return members_at(text, at, "}", true, depth + 1) end
  if mark == "[" then return members_at(text, at, "]", false, depth + 1) end
  if mark == '"' then return string_at(text, at) end
  local word = text:match("^%-?[%w.+-]+", at) or ""
  if word == "true" then return true, at + 4 end
  if word == "false" then return false, at + 5 end
  if word == "null" then return nil, at + 4 end
  local number = word:match("^%-?%d[%d.eE+-]*$") and tonumber(word)
  if not number then error("JSON: no value at character " .. at) end
  return number, at + #word
end

-- Returns the value of a JSON text; null is nil. Raises an error for anything else.
function twin.decode(text)
  local value, at = value_at(text, 1, 0)
  if after_space(text, at) <= #text then error("JSON: more than one value") end
  return value
end


-- The question ----------------------------------------------------------------------------------------------

-- Returns the marker of a comment without `twin:`; nil: it has none.
function twin.marker(comment)
  local found = comment and (" " .. comment):match("[%s;,]twin:([^%s;]*)")
  return found
end

local function json_word(value)
  if value == "true" or value == "false" then return value end
  local number = value:match("^%-?%d[%d.eE+-]*$") and tonumber(value)
  if number and number == number and math.abs(number) < 1e300 then
    if number == math.floor(number) and math.abs(number) < 1e15 then return string.format("%.0f", number) end
    return string.format("%.17g", number)
  end
  return '"' .. value .. '"'
end

-- Returns the body of /v1/admission for a marker; nil and what is wrong with it. Words hold letters, digits
-- and `_ . + -` alone, so that neither JSON nor the shell sees anything else.
function twin.question(marker)
  local model, job, tokens = nil, {}, nil
  for word in (marker .. ","):gmatch("([^,]*),") do
    local key, value = word:match("^([%a_]+)=([%w_.+-]+)$")
    if not model then
      model = word:match("^[%w_.+-]+$")
      if not model then return nil, "no model after twin:" end
    elseif not key then
      return nil, "a setting is KEY=VALUE of letters, digits and _ . + -"
    elseif key == "tokens" then
      tokens = json_word(value)
    else
      job[#job + 1] = '"' .. key .. '":' .. json_word(value)
    end
  end
  local more = tokens and ',"tokens":' .. tokens or ""
  return '{"model":"' .. model .. '","job":{' .. table.concat(job, ",") .. "}" .. more .. "}"
end

local function quoted(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

-- Returns the command that asks: curl ends by itself in `timeout_s`, and prints the status after the answer.
function twin.command(body)
  local set = twin.settings
  local words = {
    "curl", "--disable", "--silent", "--show-error", "--noproxy", "'*'", "--max-time", quoted(set.timeout_s),
    "--max-filesize", tostring(LONGEST_ANSWER), "--header", "'Content-Type: application/json'",
    "--write-out", "'\\n%{http_code}'", "--data-raw", quoted(body),
  }
  if set.header_file then words[#words + 1] = "--header " .. quoted("@" .. set.header_file) end
  if set.ca_file then words[#words + 1] = "--cacert " .. quoted(set.ca_file) end
  words[#words + 1] = quoted(set.url .. "/v1/admission")
  return table.concat(words, " ") .. " 2>&1 </dev/null"
end

-- Returns the answer; nil and why there is none, and whether the service itself is in question.
function twin.ask(body)
  local pipe, problem = io.popen(twin.command(body), "r")
  if not pipe then return nil, tostring(problem), true end
  local said = pipe:read(LONGEST_ANSWER) or ""
  pipe:close()
  local text, status = said:match("^(.*)\n(%d%d%d)%s*$")
  if status == nil or status == "000" then
    return nil, (text or said):gsub("%s+", " "):sub(1, 200), true
  end
  local right, answer = pcall(twin.decode, text)
  if not right or type(answer) ~= "table" then return nil, "status " .. status .. " and no JSON", true end
  if status == "200" then return answer end
  local message = type(answer.message) == "string" and answer.message or "no reason given"
  return nil, "status " .. status .. ": " .. message:sub(1, 200), tonumber(status) >= 500
end


-- The answer ------------------------------------------------------------------------------------------------

local function number_of(value, form) return type(value) == "number" and string.format(form, value) or "?" end

-- Returns the answer in one line.
function twin.sentence(answer)
  local fit = answer.now or answer.alone
  local said = "twin: " .. tostring(answer.reason)
  if fit then
    local places = {}
    for n, one in ipairs(fit.placement) do places[n] = one.gpus .. " GPUs in " .. one.domain end
    said = said .. "; " .. table.concat(places, " + ") .. ", " .. number_of(fit.iteration_s, "%.3g")
      .. " s an iteration, " .. number_of(fit.tokens_per_s, "%.0f") .. " tokens/s, egress "
      .. number_of(fit.egress_usd_per_hour, "%.2f") .. " USD/h"
  end
  if type(answer.starts_in_s) == "number" and answer.starts_in_s > 0 then
    said = said .. "; starts in " .. number_of(answer.starts_in_s, "%.0f") .. " s"
  end
  return (said:gsub("[%c]", " "):sub(1, LONGEST_COMMENT))
end

local function empty(text) return text == nil or text == "" end

-- Returns the feature that nodes of a domain have: its letters and digits in lower case, hyphens between.
local function feature_of(domain)
  local plain = domain:lower():gsub("[^a-z0-9]+", "-"):sub(1, 40):gsub("^%-+", ""):gsub("%-+$", "")
  return twin.settings.features[domain] or plain
end

-- Gives a job what it does not say itself: feature, partition, nodes and tasks of its part of the plan.
function twin.place(slurm, job, part)
  local set, done = twin.settings, {}
  if empty(job.features) then
    job.features, done[#done + 1] = feature_of(part.domain), "feature"
  end
  if empty(job.partition) and set.partitions[part.domain] then
    job.partition, done[#done + 1] = set.partitions[part.domain], "partition"
  end
  local each = set.gpus_per_node
  if each and job.min_nodes == slurm.NO_VAL and job.num_tasks == slurm.NO_VAL then
    local nodes, on_node = math.ceil(part.gpus / each), math.min(part.gpus, each)
    job.min_nodes, job.max_nodes = nodes, nodes
    job.num_tasks, job.ntasks_per_node = part.gpus, on_node
    if job.cpus_per_task == slurm.NO_VAL16 then job.min_cpus = part.gpus end
    if empty(job.tres_per_node) and empty(job.tres_per_job) then job.tres_per_node = "gres:gpu:" .. on_node end
    done[#done + 1] = "nodes"
  end
  return table.concat(done, ", ")
end

-- Returns the question's answer, and the component's number from 1 on; nil: nothing to do.
local function answer_for(slurm, job)
  local now, user, offset = os.time(), job.user_id, job.het_job_offset
  local component = (offset == nil or offset == slurm.NO_VAL) and 0 or offset
  local before = opened[user]
  opened[user] = nil
  local follows = component > 0 and before and before.component == component
    and now - before.at <= LONGEST_SUBMISSION_S
  local marker = twin.marker(job.comment)
  if follows and (marker == nil or marker == before.marker) then
    opened[user] = { component = component + 1, at = now, marker = before.marker, answer = before.answer }
    return before.answer, component + 1
  end
  if not marker then return nil end
  local body, wrong = twin.question(marker)
  if not body then
    slurm.log_user("twin: comment twin:%s not understood: %s; the job is submitted as it is", marker, wrong)
    return nil
  end
  if now < silent_until then
    slurm.log_info("twin: not asked about a job of user %s: no answer a moment ago", tostring(user))
    return nil
  end
  local answer, why, lost = twin.ask(body)
  if not answer then
    if lost then silent_until = os.time() + twin.settings.pause_s end
    slurm.log_error("twin: no answer, the job goes through as it is: %s", why)
    slurm.log_user("twin: no estimate (%s); the job is submitted as it is", why)
    return nil
  end
  if offset ~= nil and offset ~= slurm.NO_VAL then
    opened[user] = { component = component + 1, at = now, marker = marker, answer = answer }
  end
  return answer, component + 1
end

local function handle(slurm, job)
  local answer, number = answer_for(slurm, job)
  if not answer then return end
  local said = twin.sentence(answer)
  local fit = answer.now or answer.alone
  local alone = job.het_job_offset == nil or job.het_job_offset == slurm.NO_VAL
  if fit and twin.settings.place then
    local part = fit.placement[number]
    if alone and #fit.placement > 1 then
      said = said .. "; ask for a heterogeneous job of " .. #fit.placement .. " components to be placed so"
    elseif part then
      local done = twin.place(slurm, job, part)
      if done ~= "" then said = said .. "; set from the plan: " .. done end
    else
      said = said .. "; the plan has no component " .. (number - 1)
    end
  end
  job.admin_comment = empty(job.admin_comment) and said or job.admin_comment .. "; " .. said
  if number == 1 then slurm.log_user("%s", said) end
  slurm.log_info("user %s, component %d: %s", tostring(job.user_id), number - 1, said)
end

-- Asks about a job and writes the answer into it. Never raises an error, never refuses.
function twin.submit(slurm, job)
  local right, problem = pcall(handle, slurm, job)
  if not right then slurm.log_error("twin: a fault, the job goes through: %s", tostring(problem)) end
end

-- Forgets answers and pauses.
function twin.reset() silent_until, opened = 0, {} end

return twin
