"""A graph of one node with a conversation as its state: served by Aegra and by `langgraph dev` alike."""

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from model_call import answer


async def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    return {"messages": [AIMessage(await answer(str(state["messages"][-1].content)))]}


_builder = StateGraph(MessagesState)
_builder.add_node("model", model)
_builder.add_edge(START, "model")
_builder.add_edge("model", END)
graph = _builder.compile()
