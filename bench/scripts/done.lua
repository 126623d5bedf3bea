-- What every script needs: the options given after `--` as name=value, a number for each thread, and the result as JSON.

options = {}
thread_number = 0

local threads = 0

function setup(thread)
  thread:set("thread_number", threads)
  threads = threads + 1
end

function read_options(arguments)
  for _, argument in ipairs(arguments) do
    local name, value = argument:match("^([%w_]+)=(.*)$")
    options[name] = tonumber(value) or value
  end
  math.randomseed((options.seed or 0) * 100 + thread_number)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"refused":%d,"broken":%d,"median_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
