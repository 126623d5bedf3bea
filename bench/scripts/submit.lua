-- Inputs for `sessions` sessions, every `stride`th from number `first` on: drawn at random, or one after the other where
-- `order=next`.
-- `keys=…`: each with an Idempotency-Key of its own, which begins so.

dofile("done.lua")

local headers, body
local sent = 0

function init(arguments)
  read_options(arguments)
  headers = { ["Authorization"] = "Bearer " .. options.key, ["Content-Type"] = "application/json" }
  body = '{"type":"input","text":"' .. options.text .. '"}'
end

function request()
  local number = options.order == "next" and sent or math.random(0, options.sessions - 1)
  sent = sent + 1
  if options.keys then
    headers["Idempotency-Key"] = string.format("%s-%d-%d", options.keys, thread_number, sent)
  end
  local path = string.format("/v1/sessions/01900000-0000-7000-8000-%012x/events", options.first + options.stride * number)
  return wrk.format("POST", path, headers, body)
end
