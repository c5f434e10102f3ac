#include "datasets/texts/worlds.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace kvarena::datasets {
namespace {

constexpr std::array<std::string_view, 24> kTownStarts = {
    "Alder", "Brook", "Cold", "Dun", "Elm",   "Fair",  "Green", "Hazel", "Iron", "Kings", "Lang",   "Mill",
    "North", "Oak",   "Pine", "Red", "Stone", "Thorn", "Under", "Vale",  "West", "White", "Winter", "Black"};
constexpr std::array<std::string_view, 12> kTownEnds = {"wick", "ford", "bury", "field", "haven", "mere",
                                                        "ton",  "well", "dale", "gate",  "marsh", "bridge"};
constexpr std::array<std::string_view, 24> kFirstNames = {
    "Maria", "Peter", "Anna", "David",  "Laura", "Thomas", "Helen", "Simon",  "Clara", "Martin", "Julia", "Robert",
    "Emma",  "Frank", "Nina", "Oliver", "Sarah", "Victor", "Alice", "George", "Irene", "Henry",  "Rose",  "Paul"};
constexpr std::array<std::string_view, 24> kLastNames = {
    "Holt",  "Baker", "Cole",  "Marsh",  "Stone", "Frost", "Reed",   "Parker", "Lane",   "Shaw",   "Wood",  "Hill",
    "Brown", "King",  "Young", "Turner", "Price", "Ward",  "Foster", "Grant",  "Fisher", "Palmer", "Wells", "Carter"};
constexpr std::array<std::string_view, 24> kObjects = {"apples", "clocks", "bells",  "carpets", "candles", "cheese",
                                                       "chairs", "drums",  "furs",   "glass",   "gloves",  "hats",
                                                       "honey",  "kites",  "knives", "lamps",   "maps",    "nails",
                                                       "paper",  "pears",  "ropes",  "salt",    "shoes",   "soap"};
constexpr std::array<std::string_view, 24> kColors = {
    "red",    "blue",   "green",  "yellow", "white", "black", "brown",  "gray",   "pink",  "purple", "orange", "gold",
    "silver", "bronze", "copper", "ivory",  "amber", "coral", "violet", "indigo", "olive", "ruby",   "jade",   "pearl"};
constexpr std::array<std::string_view, 24> kNouns = {"anchor", "basket",  "bridge", "button",   "castle", "cedar",
                                                     "circle", "garden",  "hammer", "harbor",   "island", "kettle",
                                                     "ladder", "lantern", "mirror", "mountain", "needle", "pocket",
                                                     "rocket", "saddle",  "table",  "tunnel",   "valley", "window"};

// A kind of thing: the role of its person, and what is counted of it or which part has a color.
struct Kind {
  std::string_view kind;     // "ferry"
  std::string_view role;     // "captain"
  std::string_view measure;  // "seats"; empty = a part has a color instead
  std::string_view part;     // "flag"
};

constexpr std::array<Kind, kMaxThings> kKinds = {{
    {"ferry", "captain", "", "flag"},
    {"school", "teacher", "classrooms", ""},
    {"museum", "director", "", "gate"},
    {"bakery", "owner", "ovens", ""},
    {"choir", "conductor", "singers", ""},
    {"farm", "farmer", "", "barn"},
    {"hotel", "manager", "bedrooms", ""},
    {"theater", "founder", "", "curtain"},
    {"factory", "engineer", "chimneys", ""},
    {"lighthouse", "keeper", "", "lamp"},
    {"library", "librarian", "shelves", ""},
    {"train", "driver", "", "locomotive"},
    {"hospital", "doctor", "beds", ""},
    {"castle", "duke", "towers", ""},
    {"circus", "clown", "", "tent"},
    {"market", "guard", "stalls", ""},
}};

Fact fact(std::string sentence, std::string question, std::string answer) {
  return {.sentence = std::move(sentence), .question = std::move(question), .answer = std::move(answer)};
}

}  // namespace

std::vector<Thing> make_world(Draw& draw, size_t count) {
  const std::vector<size_t> kinds = draw.choose(count, kKinds.size());
  const std::vector<size_t> towns = draw.choose(count, kTownStarts.size());
  const std::vector<size_t> first_names = draw.choose(count, kFirstNames.size());
  const std::vector<size_t> last_names = draw.choose(count, kLastNames.size());
  const std::vector<size_t> objects = draw.choose(count, kObjects.size());
  const std::vector<size_t> colors = draw.choose(count, kColors.size());
  const std::vector<size_t> numbers = draw.choose(count, 80);
  std::vector<Thing> world;
  for (size_t i = 0; i < count; ++i) {
    const Kind& kind = kKinds[kinds[i]];
    Thing thing{.name = fmt::format("{} of {}{}", kind.kind, kTownStarts[towns[i]], draw.pick(kTownEnds))};
    const std::string person = fmt::format("{} {}", kFirstNames[first_names[i]], kLastNames[last_names[i]]);
    thing.facts.push_back(fact(fmt::format("The {} of the {} is {}.", kind.role, thing.name, person),
                               fmt::format("Who is the {} of the {}?", kind.role, thing.name), person));
    const std::string object(kObjects[objects[i]]);
    thing.facts.push_back(fact(fmt::format("The treasure of the {} is {}.", thing.name, object),
                               fmt::format("What is the treasure of the {}?", thing.name), object));
    if (kind.measure.empty()) {
      const std::string color(kColors[colors[i]]);
      thing.facts.push_back(fact(fmt::format("The color of the {} of the {} is {}.", kind.part, thing.name, color),
                                 fmt::format("What is the color of the {} of the {}?", kind.part, thing.name), color));
    } else {
      const std::string number = std::to_string(12 + numbers[i]);
      thing.facts.push_back(fact(fmt::format("The number of {} of the {} is {}.", kind.measure, thing.name, number),
                                 fmt::format("What is the number of {} of the {}?", kind.measure, thing.name), number));
    }
    world.push_back(std::move(thing));
  }
  return world;
}

std::string town_name(Draw& draw) { return fmt::format("{}{}", draw.pick(kTownStarts), draw.pick(kTownEnds)); }

std::string code_word(Draw& draw) { return fmt::format("{}-{}", draw.pick(kColors), draw.pick(kNouns)); }

}  // namespace kvarena::datasets
