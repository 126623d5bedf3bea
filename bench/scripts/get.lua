-- One request, over and over, in the workspace `workspace`.

dofile("done.lua")

local asked

function init(arguments)
  read_options(arguments)
  local headers = { ["Authorization"] = "Bearer " .. options.key, ["Service-Workspace"] = options.workspace }
  asked = wrk.format("GET", options.path, headers)
end

function request()
  return asked
end
