"""Conversations in the form of BFCL's multi_turn files: requests of several turns about files, tickets and posts. Their calls are
those of the package's own classes, a few of each, described in our words."""

import random

from invented import people, towns
from make_others import function, write_rows

CATEGORIES = ("base", "long_context", "miss_func", "miss_param")
FUNCTIONS = {
    "gorilla_file_system": [
        function("cat", "Shows what a file of the current folder holds.", file_name="string"),
        function("cd", "Goes to a folder inside the current one, or to the one around it by `..`.", folder="string"),
        function("cp", "Copies a file of the current folder, under a new name or into a folder.", source="string", destination="string"),
        function("echo", "Writes a text into a file of the current folder in place of what it held.", content="string",
                 file_name="string"),
        function("mkdir", "Makes a folder in the current one.", dir_name="string"),
        function("mv", "Moves a file into a folder, or gives it another name.", source="string", destination="string"),
        function("rm", "Removes a file of the current folder.", file_name="string"),
        function("touch", "Makes an empty file in the current folder.", file_name="string")],
    "math_api": [
        function("max_value", "The largest of several numbers.", numbers="array"),
        function("mean", "The mean of several numbers.", numbers="array"),
        function("sum_values", "The sum of several numbers.", numbers="array")],
    "ticket_api": [
        function("close_ticket", "Closes a ticket.", ticket_id="integer"),
        function("create_ticket", "Makes a ticket; its number is the next one.", title="string", description="string", priority="integer"),
        function("get_ticket", "All that is known of a ticket.", ticket_id="integer"),
        function("resolve_ticket", "Notes how a ticket was resolved.", ticket_id="integer", resolution="string")],
    "posting_api": [
        function("comment", "Comments on a post.", tweet_id="integer", comment_content="string"),
        function("get_tweet", "A post by its number.", tweet_id="integer"),
        function("post_tweet", "Posts a text; its number is the next one.", content="string", tags="array")]}


def call(name, **arguments):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def files(**contents):
    """A folder `work` of files, and of an empty folder `old`."""
    held = {name.replace("_", ".", 1): {"type": "file", "content": text} for name, text in contents.items()}
    return {"root": {"work": {"type": "directory", "contents": {**held, "old": {"type": "directory", "contents": {}}}}}}


def archive(town, rng):
    """Files that are moved, written and shown."""
    return {"GorillaFileSystem": files(town_txt=town.facts()[0], bridge_txt=town.facts()[2])}, [
        ("Move town.txt to the folder `old`.", [call("mv", source="town.txt", destination="old")], "Move town.txt away.",
         "To the folder `old`."),
        (f"Write `{town.dish}` into a new file fair.txt.",
         [call("touch", file_name="fair.txt"), call("echo", content=town.dish, file_name="fair.txt")]),
        ("What does bridge.txt say?", [call("cat", file_name="bridge.txt")])]


def accounts(town, rng):
    """Numbers of a file, and what is made of them."""
    numbers = [rng.randrange(10, 99) for _ in range(4)]
    return {"GorillaFileSystem": files(loaves_csv=",".join(map(str, numbers))), "MathAPI": {}}, [
        ("Show me loaves.csv.", [call("cat", file_name="loaves.csv")]),
        ("What is the mean of its numbers?", [call("mean", numbers=numbers)]),
        ("Write their sum into a new file sum.txt.", [call("sum_values", numbers=numbers), call("touch", file_name="sum.txt"),
         call("echo", content=str(sum(numbers)), file_name="sum.txt")], "Write their sum into a new file.", "Call it sum.txt.")]


def tickets(town, rng):
    """Tickets that are made and resolved."""
    clerk, number = people(rng, 1)[0], rng.randrange(20, 80)
    return {"TicketAPI": {"ticket_queue": [], "ticket_counter": number, "current_user": clerk}}, [
        (f"Make a ticket of priority 3 `Flood at {town.name}` with the text `The {town.river} is high.`",
         [call("create_ticket", title=f"Flood at {town.name}", description=f"The {town.river} is high.", priority=3)]),
        ("Resolve it, the gates are open.", [call("resolve_ticket", ticket_id=number, resolution="The gates are open.")],
         "Resolve it.", "As to how: `The gates are open.`"),
        (f"Show me ticket {number}.", [call("get_ticket", ticket_id=number)])]


def posts(town, rng):
    """A file that is posted and commented on."""
    number = rng.randrange(3, 30)
    return {"TwitterAPI": {"username": town.name.lower(), "password": "fair", "authenticated": True, "tweets": {}, "comments": {},
                           "retweets": {}, "following_list": [], "tweet_counter": number},
            "GorillaFileSystem": files(news_txt=town.facts()[4])}, [
        ("What is in news.txt?", [call("cat", file_name="news.txt")]),
        ("Post it with the tag #fair.", [call("post_tweet", content=town.facts()[4], tags=["#fair"])], "Post it with a tag.",
         "The tag is #fair."),
        (f"Comment on post {number}: `See you in {town.month}`. Then remove the file.",
         [call("comment", tweet_id=number, comment_content=f"See you in {town.month}"), call("rm", file_name="news.txt")])]


def copies(town, rng):
    """Folders and copies."""
    return {"GorillaFileSystem": files(map_txt=town.facts()[5])}, [
        (f"Make a folder {town.river} and copy map.txt into it.",
         [call("mkdir", dir_name=town.river), call("cp", source="map.txt", destination=town.river)],
         "Make a folder and copy map.txt into it.", f"It is called {town.river}."),
        (f"Go there and rename the copy to {town.name}.txt.",
         [call("cd", folder=town.river), call("mv", source="map.txt", destination=f"{town.name}.txt")]),
        ("Show it, and come back.", [call("cat", file_name=f"{town.name}.txt"), call("cd", folder="..")])]


def counts(town, rng):
    """Numbers that go into a ticket."""
    number, numbers = rng.randrange(100, 400), [town.arches, town.workers, town.pupils]
    return {"MathAPI": {}, "TicketAPI": {"ticket_queue": [], "ticket_counter": number, "current_user": town.builder}}, [
        (f"Which of {numbers} is the largest?", [call("max_value", numbers=numbers)]),
        (f"Make a ticket of priority 1 with the title `{town.trade}` and that number as its text.",
         [call("create_ticket", title=town.trade, description=str(max(numbers)), priority=1)],
         "Make a ticket of priority 1 with that number as its text.", f"Its title is `{town.trade}`."),
        ("Close it again.", [call("close_ticket", ticket_id=number)])]


def turns_of(category, asked):
    """Messages and calls of each turn, and functions that are not told before one; a request of four parts is the one that
    lacks something at first."""
    said, calls, missed = [], [], {}
    for text, right, *parts in asked:
        user = lambda content: [{"role": "user", "content": content}]
        if parts and category == "miss_param":
            said += [user(parts[0]), user(parts[1])]
            calls += [[], right]
        elif parts and category == "miss_func":
            said += [user(text), []]
            calls += [[], right]
            missed[str(len(said) - 1)] = [right[0].split("(")[0]]
        else:
            said.append(user(text))
            calls.append(right)
    return said, calls, missed


def rows_of(category):
    """Rows of the file of requests, and of that of right calls."""
    places = towns(random.Random("bfcl multi_turn"), 6)
    requests, answers = [], []
    for n, make in enumerate((archive, accounts, tickets, posts, copies, counts)):
        state, asked = make(places[n], random.Random(f"bfcl multi_turn {n}"))
        said, calls, missed = turns_of(category, asked)
        row = {"id": f"multi_turn_{category}_{n}", "question": said, "initial_config": state, "path": [],
               "involved_classes": list(state)}
        requests.append({**row, "missed_function": missed} if category == "miss_func" else row)
        answers.append({"id": row["id"], "ground_truth": calls})
    return requests, answers


def main():
    for category in CATEGORIES:
        requests, answers = rows_of(category)
        write_rows(f"bfcl/BFCL_v4_multi_turn_{category}.json", requests)
        write_rows(f"bfcl/possible_answer/BFCL_v4_multi_turn_{category}.json", answers)
    for name, functions in FUNCTIONS.items():
        write_rows(f"bfcl/multi_turn_func_doc/{name}.json", functions)
