#include "datasets/texts/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "datasets/prompt.h"

namespace kvarena::datasets {
namespace {

// Values to choose from.
constexpr std::string_view kCityValues = "Berlin|Madrid|Oslo|Paris|Rome|Tokyo|Vienna|Lisbon|Dublin|Prague|Athens|Cairo";
constexpr std::string_view kDayValues = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday";
constexpr std::string_view kPersonValues = "Anna|David|Emma|Frank|Helen|Laura|Martin|Nina|Peter|Robert|Sarah|Thomas";
constexpr std::string_view kHourValues = "6..22";
constexpr std::string_view kRoomValues = "kitchen|bedroom|bathroom|garage|office|hallway|cellar|attic";
constexpr std::string_view kCountValues = "2..9";
constexpr std::string_view kMinutesValues = "10..90";
constexpr std::string_view kAmountValues = "20..900";
constexpr std::string_view kCurrencyValues = "EUR|USD|GBP|JPY|CHF|SEK";
constexpr std::string_view kSongValues =
    "Blue Morning|Long Road|Silver Rain|Night Train|Golden Hour|Open Window|Winter Light|Paper Boats";
constexpr std::string_view kArtistValues = "Grey Foxes|Marble Hill|The Lanterns|River Choir|Tin Sailors|North Avenue";
constexpr std::string_view kDishValues = "pasta|pizza|soup|salad|curry|sushi|tacos|pancakes";
constexpr std::string_view kBookValues =
    "The Glass Hill|Two Rivers|Cold Harbor|The Ninth Door|Summer Letters|A Quiet War";
constexpr std::string_view kLanguageValues = "French|German|Spanish|Italian|Polish|Greek|Swedish|Turkish";
constexpr std::string_view kWordValues = "bridge|garden|mirror|window|candle|forest|hammer|ladder";
constexpr std::string_view kTeamValues = "Falcons|Tigers|Rovers|Comets|Bears|Pirates|Eagles|Wolves";
constexpr std::string_view kNumberValues = "A17|B42|C83|D29|E56|F71|G34|H95";
constexpr std::string_view kProductValues = "lamp|chair|kettle|backpack|bicycle|camera|jacket|teapot";
constexpr std::string_view kFileValues = "notes.txt|budget.csv|photo.png|report.pdf|plan.doc|music.mp3";
constexpr std::string_view kDegreesValues = "16..25";

// Parameters of each function, in the order of a call.
constexpr FunctionParameter kGetWeather[] = {
    {"city", "string", "name of the city", kCityValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kGetTemperature[] = {
    {"city", "string", "name of the city", kCityValues},
};
constexpr FunctionParameter kGetWindSpeed[] = {
    {"city", "string", "name of the city", kCityValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kGetSunrise[] = {
    {"city", "string", "name of the city", kCityValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kGetAirQuality[] = {
    {"city", "string", "name of the city", kCityValues},
};
constexpr FunctionParameter kSetStormAlert[] = {
    {"city", "string", "name of the city", kCityValues},
    {"hours", "integer", "hours of warning before the storm", kHourValues},
};
constexpr FunctionParameter kBookFlight[] = {
    {"origin", "string", "city of departure", kCityValues},
    {"destination", "string", "city of arrival", kCityValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kBookHotel[] = {
    {"city", "string", "name of the city", kCityValues},
    {"nights", "integer", "number of nights", kCountValues},
};
constexpr FunctionParameter kFindTrain[] = {
    {"origin", "string", "city of departure", kCityValues},
    {"destination", "string", "city of arrival", kCityValues},
};
constexpr FunctionParameter kRentCar[] = {
    {"city", "string", "name of the city", kCityValues},
    {"days", "integer", "number of days", kCountValues},
};
constexpr FunctionParameter kOrderTaxi[] = {
    {"city", "string", "name of the city", kCityValues},
    {"hour", "integer", "hour of the day, 0 to 23", kHourValues},
};
constexpr FunctionParameter kGetVisaRules[] = {
    {"city", "string", "name of the city", kCityValues},
    {"weeks", "integer", "length of the stay in weeks", kCountValues},
};
constexpr FunctionParameter kTurnOnLight[] = {
    {"room", "string", "name of the room", kRoomValues},
};
constexpr FunctionParameter kTurnOffLight[] = {
    {"room", "string", "name of the room", kRoomValues},
};
constexpr FunctionParameter kSetTemperature[] = {
    {"room", "string", "name of the room", kRoomValues},
    {"degrees", "integer", "temperature in degrees Celsius", kDegreesValues},
};
constexpr FunctionParameter kLockDoor[] = {
    {"room", "string", "name of the room", kRoomValues},
};
constexpr FunctionParameter kStartVacuum[] = {
    {"room", "string", "name of the room", kRoomValues},
    {"minutes", "integer", "length in minutes", kMinutesValues},
};
constexpr FunctionParameter kOpenBlinds[] = {
    {"room", "string", "name of the room", kRoomValues},
    {"hour", "integer", "hour of the day, 0 to 23", kHourValues},
};
constexpr FunctionParameter kPlaySong[] = {
    {"song", "string", "title of the song", kSongValues},
    {"artist", "string", "name of the artist", kArtistValues},
};
constexpr FunctionParameter kAddToPlaylist[] = {
    {"song", "string", "title of the song", kSongValues},
    {"playlist", "string", "name of the playlist", kDayValues},
};
constexpr FunctionParameter kSetVolume[] = {
    {"room", "string", "name of the room", kRoomValues},
    {"level", "integer", "volume from 0 to 10", kCountValues},
};
constexpr FunctionParameter kFindConcert[] = {
    {"artist", "string", "name of the artist", kArtistValues},
    {"city", "string", "name of the city", kCityValues},
};
constexpr FunctionParameter kGetLyrics[] = {
    {"song", "string", "title of the song", kSongValues},
};
constexpr FunctionParameter kStopMusic[] = {
    {"minutes", "integer", "length in minutes", kMinutesValues},
};
constexpr FunctionParameter kOrderFood[] = {
    {"dish", "string", "name of the dish", kDishValues},
    {"portions", "integer", "number of portions", kCountValues},
};
constexpr FunctionParameter kFindRecipe[] = {
    {"dish", "string", "name of the dish", kDishValues},
    {"people", "integer", "number of people", kCountValues},
};
constexpr FunctionParameter kBookTable[] = {
    {"city", "string", "name of the city", kCityValues},
    {"people", "integer", "number of people", kCountValues},
    {"hour", "integer", "hour of the day, 0 to 23", kHourValues},
};
constexpr FunctionParameter kGetCalories[] = {
    {"dish", "string", "name of the dish", kDishValues},
};
constexpr FunctionParameter kAddToShoppingList[] = {
    {"product", "string", "name of the product", kProductValues},
    {"count", "integer", "how many", kCountValues},
};
constexpr FunctionParameter kSetKitchenTimer[] = {
    {"minutes", "integer", "length in minutes", kMinutesValues},
};
constexpr FunctionParameter kSendEmail[] = {
    {"person", "string", "first name of the person", kPersonValues},
    {"attachment", "string", "name of the attached file", kFileValues},
};
constexpr FunctionParameter kScheduleMeeting[] = {
    {"person", "string", "first name of the person", kPersonValues},
    {"day", "string", "day of the week", kDayValues},
    {"hour", "integer", "hour of the day, 0 to 23", kHourValues},
};
constexpr FunctionParameter kCancelMeeting[] = {
    {"person", "string", "first name of the person", kPersonValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kDeleteFile[] = {
    {"file", "string", "name of the file", kFileValues},
};
constexpr FunctionParameter kPrintFile[] = {
    {"file", "string", "name of the file", kFileValues},
    {"copies", "integer", "number of copies", kCountValues},
};
constexpr FunctionParameter kCallPerson[] = {
    {"person", "string", "first name of the person", kPersonValues},
};
constexpr FunctionParameter kConvertCurrency[] = {
    {"amount", "integer", "amount in whole units", kAmountValues},
    {"source", "string", "currency code of the amount", kCurrencyValues},
    {"target", "string", "currency code of the result", kCurrencyValues},
};
constexpr FunctionParameter kSendMoney[] = {
    {"person", "string", "first name of the person", kPersonValues},
    {"amount", "integer", "amount in whole units", kAmountValues},
    {"currency", "string", "currency code", kCurrencyValues},
};
constexpr FunctionParameter kGetBalance[] = {
    {"currency", "string", "currency code", kCurrencyValues},
};
constexpr FunctionParameter kPayBill[] = {
    {"bill", "string", "number of the bill", kNumberValues},
    {"amount", "integer", "amount in whole units", kAmountValues},
};
constexpr FunctionParameter kGetPrice[] = {
    {"product", "string", "name of the product", kProductValues},
    {"currency", "string", "currency code", kCurrencyValues},
};
constexpr FunctionParameter kTrackOrder[] = {
    {"order", "string", "number of the order", kNumberValues},
};
constexpr FunctionParameter kTranslateWord[] = {
    {"word", "string", "a single word", kWordValues},
    {"language", "string", "name of the language", kLanguageValues},
};
constexpr FunctionParameter kDefineWord[] = {
    {"word", "string", "a single word", kWordValues},
};
constexpr FunctionParameter kFindBook[] = {
    {"book", "string", "title of the book", kBookValues},
    {"city", "string", "name of the city", kCityValues},
};
constexpr FunctionParameter kGetPopulation[] = {
    {"city", "string", "name of the city", kCityValues},
};
constexpr FunctionParameter kGetMatchResult[] = {
    {"team", "string", "name of the team", kTeamValues},
    {"day", "string", "day of the week", kDayValues},
};
constexpr FunctionParameter kGetDistance[] = {
    {"origin", "string", "first city", kCityValues},
    {"destination", "string", "second city", kCityValues},
};

constexpr FunctionSpec kCatalogue[] = {
    {"weather", "get_weather", "Get the weather of a city on a day", kGetWeather,
     "What will the weather be like in {city} on {day}?"},
    {"weather", "get_temperature", "Get the current temperature of a city", kGetTemperature,
     "How warm is it in {city} right now?"},
    {"weather", "get_wind_speed", "Get the wind speed of a city on a day", kGetWindSpeed,
     "How strong is the wind going to be in {city} on {day}?"},
    {"weather", "get_sunrise", "Get the time of sunrise in a city", kGetSunrise,
     "When does the sun rise in {city} on {day}?"},
    {"weather", "get_air_quality", "Get the air quality of a city", kGetAirQuality,
     "Is the air clean in {city} today?"},
    {"weather", "set_storm_alert", "Send an alert before storms", kSetStormAlert,
     "Please warn me {hours} hours before any storm in {city}."},
    {"travel", "book_flight", "Book a flight between two cities", kBookFlight,
     "Book a flight from {origin} to {destination} on {day}."},
    {"travel", "book_hotel", "Book a hotel in a city", kBookHotel, "I need a hotel in {city} for {nights} nights."},
    {"travel", "find_train", "Find a train between two cities", kFindTrain,
     "Find a train from {origin} to {destination}."},
    {"travel", "rent_car", "Rent a car in a city", kRentCar, "Rent a car in {city} for {days} days."},
    {"travel", "order_taxi", "Order a taxi", kOrderTaxi, "I want a taxi in {city} at {hour} o'clock."},
    {"travel", "get_visa_rules", "Get the visa rules for a stay", kGetVisaRules,
     "Do I need a visa to stay {weeks} weeks in {city}?"},
    {"home", "turn_on_light", "Turn on the light of a room", kTurnOnLight, "Turn on the light in the {room}."},
    {"home", "turn_off_light", "Turn off the light of a room", kTurnOffLight,
     "Switch the light off in the {room}, please."},
    {"home", "set_temperature", "Set the heating of a room", kSetTemperature, "Heat the {room} to {degrees} degrees."},
    {"home", "lock_door", "Lock the door of a room", kLockDoor, "Lock the door of the {room}."},
    {"home", "start_vacuum", "Start the vacuum robot in a room", kStartVacuum,
     "Vacuum the {room} for {minutes} minutes."},
    {"home", "open_blinds", "Open the blinds of a room at an hour", kOpenBlinds,
     "Open the blinds in the {room} at {hour} o'clock."},
    {"music", "play_song", "Play a song", kPlaySong, "Play {song} by {artist}."},
    {"music", "add_to_playlist", "Add a song to a playlist", kAddToPlaylist, "Put {song} on my {playlist} playlist."},
    {"music", "set_volume", "Set the volume of the player in a room", kSetVolume,
     "Set the volume in the {room} to {level}."},
    {"music", "find_concert", "Find concerts of an artist in a city", kFindConcert,
     "Does {artist} give a concert in {city}?"},
    {"music", "get_lyrics", "Get the words of a song", kGetLyrics, "Show me the words of {song}."},
    {"music", "stop_music", "Stop the music after some minutes", kStopMusic, "Stop the music in {minutes} minutes."},
    {"food", "order_food", "Order a dish from a restaurant", kOrderFood, "Order {portions} portions of {dish}."},
    {"food", "find_recipe", "Find a recipe for a dish", kFindRecipe, "Give me a recipe of {dish} for {people} people."},
    {"food", "book_table", "Book a table in a restaurant", kBookTable,
     "Book a table in {city} for {people} people at {hour} o'clock."},
    {"food", "get_calories", "Get the calories of a dish", kGetCalories, "How many calories does {dish} have?"},
    {"food", "add_to_shopping_list", "Put something on the shopping list", kAddToShoppingList,
     "Put {count} of {product} on the shopping list."},
    {"food", "set_kitchen_timer", "Set a timer in the kitchen", kSetKitchenTimer,
     "Set the kitchen timer to {minutes} minutes."},
    {"office", "send_email", "Send an email to a person", kSendEmail, "Send {person} an email with {attachment}."},
    {"office", "schedule_meeting", "Schedule a meeting with a person", kScheduleMeeting,
     "Set up a meeting with {person} on {day} at {hour} o'clock."},
    {"office", "cancel_meeting", "Cancel a meeting with a person", kCancelMeeting,
     "Cancel my meeting with {person} on {day}."},
    {"office", "delete_file", "Delete a file", kDeleteFile, "Delete the file {file}."},
    {"office", "print_file", "Print a file", kPrintFile, "Print {copies} copies of {file}."},
    {"office", "call_person", "Call a person by telephone", kCallPerson, "Call {person} for me."},
    {"money", "convert_currency", "Convert an amount between currencies", kConvertCurrency,
     "How much is {amount} {source} in {target}?"},
    {"money", "send_money", "Send money to a person", kSendMoney, "Send {amount} {currency} to {person}."},
    {"money", "get_balance", "Get the balance in a currency", kGetBalance, "What is my balance in {currency}?"},
    {"money", "pay_bill", "Pay a bill", kPayBill, "Pay bill {bill} of {amount} euros."},
    {"money", "get_price", "Get the price of a product", kGetPrice, "What does a {product} cost in {currency}?"},
    {"money", "track_order", "Track an order", kTrackOrder, "Where is my order {order}?"},
    {"knowledge", "translate_word", "Translate a word into a language", kTranslateWord,
     "Translate {word} into {language}."},
    {"knowledge", "define_word", "Explain the meaning of a word", kDefineWord, "What does the word {word} mean?"},
    {"knowledge", "find_book", "Find a book in a library", kFindBook, "Is the book {book} in the library of {city}?"},
    {"knowledge", "get_population", "Get the population of a city", kGetPopulation, "How many people live in {city}?"},
    {"knowledge", "get_match_result", "Get the result of a match", kGetMatchResult,
     "How did the {team} play on {day}?"},
    {"knowledge", "get_distance", "Get the distance between two cities", kGetDistance,
     "How far is it from {origin} to {destination}?"},
};

// Models have seen JSON as Python prints it, with a blank after colons and commas; values here contain neither quotes
// nor back-slashes.
std::string spaced(std::string_view json) {
  std::string text;
  bool in_string = false;
  for (const char c : json) {
    text.push_back(c);
    if (c == '"') in_string = !in_string;
    if (!in_string && (c == ':' || c == ',')) text.push_back(' ');
  }
  return text;
}

std::string draw_value(std::string_view values, Draw& draw) {
  const size_t dots = values.find("..");
  if (dots != std::string_view::npos) {
    int64_t low = 0;
    int64_t high = 0;
    std::from_chars(values.data(), values.data() + dots, low);
    std::from_chars(values.data() + dots + 2, values.data() + values.size(), high);
    return std::to_string(draw.between(low, high));
  }
  std::vector<std::string_view> choices;
  for (size_t begin = 0; begin <= values.size();) {
    const size_t end = std::min(values.find('|', begin), values.size());
    choices.push_back(values.substr(begin, end - begin));
    begin = end + 1;
  }
  return std::string(draw.pick(choices));
}

}  // namespace

std::span<const FunctionSpec> function_catalogue() { return kCatalogue; }

FunctionRequest draw_request(const FunctionSpec& function, Draw& draw) {
  std::vector<std::string> values;
  for (const FunctionParameter& parameter : function.parameters) {
    std::string value = draw_value(parameter.values, draw);
    // A journey has two ends, a conversion two currencies.
    while (std::find(values.begin(), values.end(), value) != values.end()) value = draw_value(parameter.values, draw);
    values.push_back(std::move(value));
  }
  std::vector<Slot> slots;
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
  for (size_t i = 0; i < values.size(); ++i) {
    const FunctionParameter& parameter = function.parameters[i];
    slots.push_back({parameter.name, values[i]});
    if (parameter.type == "integer") {
      arguments[std::string(parameter.name)] = std::stoll(values[i]);
    } else {
      arguments[std::string(parameter.name)] = values[i];
    }
  }
  return {.text = render(function.request, slots).text,
          .call = fmt::format(R"({{"name": "{}", "arguments": {}}})", function.name, spaced(arguments.dump()))};
}

std::string function_schema(const FunctionSpec& function) {
  nlohmann::ordered_json properties = nlohmann::ordered_json::object();
  nlohmann::ordered_json required = nlohmann::ordered_json::array();
  for (const FunctionParameter& parameter : function.parameters) {
    properties[std::string(parameter.name)] = {{"type", parameter.type}, {"description", parameter.doc}};
    required.push_back(parameter.name);
  }
  const nlohmann::ordered_json schema = {
      {"name", function.name},
      {"description", function.doc},
      {"parameters", {{"type", "object"}, {"properties", properties}, {"required", required}}}};
  return spaced(schema.dump());
}

}  // namespace kvarena::datasets
