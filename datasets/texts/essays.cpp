#include "datasets/texts/essays.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include "datasets/draw.h"
#include "datasets/prompt.h"

namespace kvarena::datasets {
namespace {

// What the sentences below need to know of a subject.
struct Subject {
  std::string_view activity;  // "baking bread"
  std::string_view worker;    // "baker"
  std::string_view workers;   // "bakers"
  std::string_view thing;     // "loaf"
  std::string_view material;  // "dough"
  std::string_view tool;      // "oven"
  std::string_view place;     // "kitchen"
  std::string_view fault;     // "a hollow crust"
  std::string_view sign;      // "the smell of the crumb"
  std::string_view enemy;     // "haste"
  std::string_view detail;    // "the temperature of the water"
  std::string_view season;    // "a damp morning in autumn"
};

constexpr std::array<Subject, 20> kSubjects = {{
    {"baking bread", "baker", "bakers", "loaf", "dough", "oven", "kitchen", "a crust that hides a raw middle",
     "the hollow sound of a finished crust", "hurry", "the warmth of the water", "a damp morning"},
    {"drawing maps", "mapmaker", "mapmakers", "map", "paper", "compass", "drawing room", "a coast that was guessed",
     "the quiet of an honest blank space", "guesswork", "the slope of a hill", "a clear week in spring"},
    {"keeping bees", "beekeeper", "beekeepers", "hive", "wax", "smoker", "orchard",
     "a queen that nobody noticed was gone", "the pitch of the humming", "noise", "the weight of a frame",
     "the first warm afternoon"},
    {"building bridges", "engineer", "engineers", "bridge", "stone", "plumb line", "valley",
     "a foundation laid on sand", "the way a span answers the wind", "vanity", "the direction of the current",
     "a year of low water"},
    {"tuning pianos", "tuner", "tuners", "piano", "wire", "tuning hammer", "concert hall",
     "a chord that is right alone and wrong in company", "the slow beating of two strings", "impatience",
     "the dryness of the room", "the week before the first concert"},
    {"growing apples", "gardener", "gardeners", "tree", "wood", "pruning knife", "garden",
     "a branch that shades the rest", "the color of the young leaves", "greed", "the angle of a cut", "late winter"},
    {"mending clocks", "clockmaker", "clockmakers", "clock", "brass", "loupe", "workshop", "a tooth worn on one side",
     "the evenness of the tick", "force", "the thickness of the oil", "a long evening"},
    {"writing letters", "writer", "writers", "letter", "ink", "pen", "study",
     "a sentence that apologizes for the next one", "the pause before the last line", "ornament", "the name at the top",
     "a day without visitors"},
    {"sailing small boats", "sailor", "sailors", "boat", "rope", "rudder", "harbor",
     "a knot that holds only while it is watched", "the shadow of wind on the water", "pride", "the height of the tide",
     "the end of summer"},
    {"teaching children to read", "teacher", "teachers", "lesson", "patience", "blackboard", "classroom",
     "a question asked only to be answered", "the face of a child who has stopped guessing", "boredom",
     "the order of the first words", "the darkest weeks of the year"},
    {"weaving cloth", "weaver", "weavers", "cloth", "yarn", "loom", "attic", "a loose thread near the edge",
     "the beat of the loom", "distraction", "the twist of the yarn", "a cold month"},
    {"throwing pots", "potter", "potters", "bowl", "clay", "wheel", "studio", "a wall that is thinner than it looks",
     "the drag of the clay under a finger", "fear", "the dampness of the clay", "a dry week"},
    {"walking long distances", "walker", "walkers", "path", "leather", "staff", "countryside",
     "a shortcut through a bog", "the sound of your own steps", "comparison", "the weight of the bag", "early autumn"},
    {"cooking for many people", "cook", "cooks", "meal", "stock", "pan", "canteen", "salt added twice by two people",
     "the silence at the tables", "fashion", "the sharpness of the knife", "a feast day"},
    {"carving wood", "carver", "carvers", "figure", "oak", "chisel", "shed", "a cut made against the grain",
     "the curl of the shaving", "strength", "the direction of the grain", "a rainy season"},
    {"keeping a library", "librarian", "librarians", "shelf", "card", "catalogue", "reading room",
     "a book put back in nearly the right place", "the worn edge of a borrowed volume", "neatness for its own sake",
     "the spelling of a name", "the weeks of examinations"},
    {"painting walls", "painter", "painters", "wall", "plaster", "brush", "stairwell",
     "a second coat over a damp first one", "the way light lies on the surface", "shortcuts", "the age of the plaster",
     "a windless day"},
    {"running a small shop", "shopkeeper", "shopkeepers", "counter", "stock", "ledger", "street",
     "a bargain nobody asked for", "the second visit of a customer", "cleverness", "the price written by hand",
     "the quiet hour after lunch"},
    {"training horses", "rider", "riders", "horse", "habit", "saddle", "meadow", "a command given twice",
     "the turn of an ear", "anger", "the length of the rein", "a frosty morning"},
    {"repairing roads", "mason", "masons", "road", "gravel", "roller", "district", "a drain that was forgotten",
     "the place where water stands after rain", "appearance", "the fall of the ground", "the weeks after a thaw"},
}};

// Sentences by the place they may have in an essay. Slots are the members of Subject.
constexpr std::array<std::string_view, 10> kOpenings = {
    "People who have never tried {activity} tend to think that it is mostly a matter of talent.",
    "There are two ways to learn {activity}, and only one of them is slow enough to work.",
    "I used to believe that {activity} was a trade like any other.",
    "Ask ten {workers} how they began and you will hear ten stories about the same mistake.",
    "Nobody becomes a {worker} on purpose, at least nobody I have met.",
    "The odd thing about {activity} is how little of it can be explained in advance.",
    "When I was young I spent a summer watching a {worker}, and I have been thinking about it ever since.",
    "Most of what is written about {activity} is written by people who sell something.",
    "If you want to know whether someone understands {activity}, do not ask about the {thing}; ask about the "
    "{material}.",
    "It took me years to notice that {activity} is mostly a way of paying attention."};

constexpr std::array<std::string_view, 42> kMiddles = {
    "The first thing a beginner sees is the {thing}, and the last thing is {detail}.",
    "A good {worker} looks at the {material} before reaching for the {tool}.",
    "You can buy a better {tool}, but you cannot buy the habit of looking at {detail}.",
    "What ruins a {thing} is rarely bad {material}; it is {enemy}.",
    "Every {worker} knows {fault}, and every one of them has caused it at least once.",
    "The trouble with {fault} is that it can be seen only when it is too late to do anything about it.",
    "On {season} the same {material} behaves as if it had been replaced overnight.",
    "There is a kind of knowledge that lives in the hands, and {sign} belongs to it.",
    "Books describe the {tool} at length and say nothing about {sign}.",
    "An old {worker} once told me that {enemy} is only another name for not caring enough.",
    "It is tempting to correct a {thing} while it is being made, and usually it is wrong to do so.",
    "The best {workers} I know throw away more than they keep, and they do it without sorrow.",
    "In the {place} nobody talks much, which visitors take for coldness until they have worked there.",
    "Rules are useful for the first hundred attempts, and after that they begin to get in the way.",
    "What looks like slowness from outside is a series of quick decisions from inside.",
    "The {tool} is never the reason, although it is always the excuse.",
    "You learn more from one {thing} that failed for a reason you can name than from ten that went well.",
    "If {detail} is wrong, nothing that comes later can make up for it.",
    "A {thing} made in a bad temper can be recognized years afterward.",
    "Some {workers} keep notes, and some only remember; the notes are better on the whole.",
    "There is no such thing as a neutral {place}; it helps or it hinders, and mostly it does both.",
    "The cheap {material} teaches more than the expensive kind, because it forgives less.",
    "I have seen {enemy} spoil the work of people far more gifted than I am.",
    "Being careful is not the same as being afraid, though the two are easily confused from a distance.",
    "After a while you stop looking for {fault} and begin to feel where it would be.",
    "The {material} does not know what you intended, and it does not care.",
    "People praise the {thing} and forget the hour that was spent on {detail}.",
    "When two {workers} disagree, the subject is nearly always {detail}.",
    "Half of the skill is knowing when to leave the {place} and come back tomorrow.",
    "One can be taught to hold the {tool} in an afternoon, and one can spend ten years learning to put it down.",
    "A visitor asks how long it takes, and the honest answer is that it depends on {season}.",
    "Nothing about this is secret, and yet it seems impossible to pass on by talking.",
    "There is a pleasure in {sign} that has nothing to do with the finished {thing}.",
    "The second attempt is often worse than the first, because by then you know what you want.",
    "What matters is not that the {thing} is perfect but that you can say where it is not.",
    "Anyone can manage on a good day; the work is judged by what happens on {season}.",
    "A {worker} who blames the {material} has usually stopped listening to it.",
    "It helps to make the same {thing} many times, changing one small matter each time.",
    "The difference between a careless {worker} and a careful one is invisible for about a week.",
    "Improvement arrives in steps, with long flat stretches between them that feel like failure.",
    "I would rather have a dull {tool} and a clear afternoon than the other way round.",
    "Even the {place} has its moods, and one learns to work around them."};

constexpr std::array<std::string_view, 14> kTurns = {"And yet this is only half of the story.",
                                                     "I did not understand this at the time.",
                                                     "Of course there are exceptions, and they are instructive.",
                                                     "It would be easy to stop here, but something is missing.",
                                                     "This sounds obvious, which is why it is so often forgotten.",
                                                     "The same is true, I suspect, of most things worth doing.",
                                                     "Consider what happens when nobody is watching.",
                                                     "Here the comparison with other trades breaks down.",
                                                     "You may object that times have changed, and they have.",
                                                     "That is the theory, at any rate.",
                                                     "Let me put it differently.",
                                                     "The reason is simpler than it seems.",
                                                     "None of this is new.",
                                                     "It is worth saying twice."};

constexpr std::array<std::string_view, 10> kClosings = {
    "So the advice is short: look at {detail}, distrust {enemy}, and begin again tomorrow.",
    "In the end a {thing} is a record of attention, and attention cannot be faked for long.",
    "I no longer think that {activity} is about the {thing} at all.",
    "If there is a lesson in {activity}, it is that care is quicker than repair.",
    "Whoever has learned this in one {place} will recognize it in any other.",
    "That is all I know about {activity}, and most of it I learned by being wrong.",
    "The {thing} will be gone in a few years, but the habit stays with the {worker}.",
    "What remains is {sign}, and for that I have never found a better word.",
    "A {worker} who has understood this needs no further teaching, only more {material}.",
    "Perhaps that is why {workers} smile when they are asked for the secret."};

constexpr std::array<std::string_view, 8> kTitles = {
    "On {activity}",   "What {workers} know",           "Notes from a {place}",        "The patience of {workers}",
    "Against {enemy}", "A short defense of {activity}", "The trouble with {activity}", "Lessons from a {worker}"};

std::string fill(std::string_view sentence, const Subject& subject) {
  std::string text = render(sentence, {{"activity", subject.activity},
                                       {"worker", subject.worker},
                                       {"workers", subject.workers},
                                       {"thing", subject.thing},
                                       {"material", subject.material},
                                       {"tool", subject.tool},
                                       {"place", subject.place},
                                       {"fault", subject.fault},
                                       {"sign", subject.sign},
                                       {"enemy", subject.enemy},
                                       {"detail", subject.detail},
                                       {"season", subject.season}})
                         .text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  for (const std::string_view article : {" a ", "A "}) {  // "a engineer" -> "an engineer"
    for (size_t at = text.find(article); at != std::string::npos; at = text.find(article, at + 1)) {
      const size_t next = at + article.size();
      if (next < text.size() && std::string_view("aeio").find(text[next]) != std::string_view::npos &&
          !text.substr(next).starts_with("one")) {
        text.insert(next - 1, 1, 'n');
      }
    }
  }
  return text;
}

}  // namespace

std::string write_essay(uint64_t seed, size_t number) {
  Draw draw(seed, fmt::format("essay {}", number));
  // Neighbouring essays never share a subject: the seed orders the subjects, the number walks through them.
  const std::vector<size_t> order = Draw(seed, "essay subjects").choose(kSubjects.size(), kSubjects.size());
  const Subject& subject = kSubjects[order[number % order.size()]];
  const std::vector<size_t> middles = draw.choose(kMiddles.size(), kMiddles.size());
  const std::vector<size_t> turns = draw.choose(kTurns.size(), kTurns.size());
  const size_t paragraphs = 7 + draw.below(4);

  std::string essay = fill(draw.pick(kTitles), subject);
  essay.append(".\n\n");
  size_t middle = 0;
  for (size_t p = 0; p < paragraphs; ++p) {
    std::string_view lead = p == 0 ? draw.pick(kOpenings) : kTurns[turns[p]];
    essay += fill(lead, subject);
    const size_t sentences = 3 + draw.below(2);
    for (size_t s = 0; s < sentences && middle < middles.size(); ++s) {
      essay.append(" ").append(fill(kMiddles[middles[middle++]], subject));
    }
    if (p + 1 == paragraphs) essay.append(" ").append(fill(draw.pick(kClosings), subject));
    essay += "\n\n";
  }
  return essay;
}

std::string write_essays(uint64_t seed, size_t bytes) {
  std::string text;
  for (size_t number = 0; text.size() < bytes; ++number) text += write_essay(seed, number);
  return text;
}

}  // namespace kvarena::datasets
