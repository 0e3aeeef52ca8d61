# SPDX-License-Identifier: Apache-2.0
"""The closed world of tiny's corpus: every name, thing and fact the model may be asked about."""

FRUITS = "apple banana cherry fig grape kiwi lemon lime mango melon orange papaya peach pear plum quince".split()
ANIMALS = "ant bear cat cow dog duck eagle fox frog goat hen horse lion mouse owl pig rabbit sheep tiger wolf zebra".split()
COLORS = "black blue brown gold gray green pink purple red silver white yellow".split()
THINGS = "bag ball bell bike boat book bottle box chair clock cup desk door hat key knife lamp map pen phone plate radio ring shoe spoon table".split()
FOODS = "bread butter cake cheese coffee egg honey jam juice milk pasta pizza rice salad salt soup sugar tea".split()
WORDS = sorted(set(FRUITS + ANIMALS + COLORS + THINGS + FOODS))
NAMES = "Adam Alice Anna Ben Carla Clara David Diana Emma Eric Frank Grace Hana Hugo Ida Ivan Jack Julia Karl Laura Leo Lucy Maria Mark Mia Nina Noah Olga Oscar Paul Peter Rosa Sam Sara Tom Vera".split()
JOBS = "baker builder cook dancer doctor driver farmer gardener lawyer nurse painter pilot poet sailor singer teacher writer".split()
ROOMS = "kitchen bedroom bathroom office garage hall garden attic".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
LANGUAGES = "French German Spanish Italian Polish Greek Dutch Danish".split()
WEATHER = "sunny cloudy rainy windy snowy foggy clear stormy".split()

CAPITALS = {
    "Austria": "Vienna", "Belgium": "Brussels", "Brazil": "Brasilia", "Canada": "Ottawa", "Chile": "Santiago",
    "China": "Beijing", "Cuba": "Havana", "Denmark": "Copenhagen", "Egypt": "Cairo", "Finland": "Helsinki",
    "France": "Paris", "Germany": "Berlin", "Greece": "Athens", "Hungary": "Budapest", "India": "New Delhi",
    "Ireland": "Dublin", "Italy": "Rome", "Japan": "Tokyo", "Kenya": "Nairobi", "Mexico": "Mexico City",
    "Norway": "Oslo", "Peru": "Lima", "Poland": "Warsaw", "Portugal": "Lisbon", "Spain": "Madrid",
    "Sweden": "Stockholm", "Turkey": "Ankara", "Ukraine": "Kyiv",
}  # fmt: skip
CITIES = sorted({c for c in CAPITALS.values() if " " not in c} | {"London", "Boston", "Chicago", "Hamburg", "Milan", "Sydney", "Toronto", "Zurich"})

OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "old": "new", "up": "down", "open": "closed", "light": "dark",
    "early": "late", "hard": "soft", "full": "empty", "rich": "poor", "wet": "dry", "high": "low", "left": "right",
}  # fmt: skip
SOUNDS = {"cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "sheep": "baa", "pig": "oink", "lion": "roar", "owl": "hoot", "hen": "cluck", "horse": "neigh"}
THING_COLORS = {"the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a lemon": "yellow", "a tomato": "red", "the sea": "blue", "milk": "white", "a carrot": "orange", "chocolate": "brown"}
LEGS = {"dog": 4, "cat": 4, "hen": 2, "ant": 6, "horse": 4, "duck": 2, "spider": 8, "bee": 6, "frog": 4, "snake": 0}
AMOUNTS = {"days are in a week": 7, "months are in a year": 12, "hours are in a day": 24, "minutes are in an hour": 60, "seconds are in a minute": 60, "days are in a leap year": 366, "legs has a spider": 8, "sides has a triangle": 3, "sides has a square": 4, "letters are in the English alphabet": 26}

SMALL_TALK = {
    "Hello! How can I help you?": ["Hello", "Hello!", "Hi", "Hi!", "Hey", "Hey there", "hello", "hi", "hey", "Good morning", "Good morning!", "Good evening", "Hi there!", "Hello there", "hello!", "Greetings"],
    "I am tiny, a very small language model that comes with nibble.": ["Who are you?", "What are you?", "who are you", "Who are you", "What is your name?", "what is your name", "Tell me about yourself.", "Are you a robot?", "Are you a person?", "Are you an AI?", "Introduce yourself."],
    "I can add numbers, work on short lists, write JSON, call tools and chat a little.": ["What can you do?", "what can you do", "How can you help me?", "What do you know?", "Help", "help", "Can you help me?", "What are you good at?", "I need help."],
    "I am fine, thank you. How can I help you?": ["How are you?", "how are you", "How are you today?", "How do you do?", "Are you well?", "How is it going?", "What's up?"],
    "You are welcome!": ["Thanks", "Thanks!", "Thank you", "Thank you!", "thanks", "thank you", "Thank you very much.", "Thanks a lot!", "Great, thanks."],
    "Goodbye! Have a nice day.": ["Bye", "Bye!", "Goodbye", "Goodbye!", "bye", "See you", "See you later!", "Good night", "Farewell"],
    "I have only about twenty million parameters, so I make mistakes.": ["How big are you?", "Are you smart?", "How many parameters do you have?", "Do you make mistakes?", "Are you a large model?", "Can I trust you?"],
    "I was trained on synthetic text made by a small program.": ["How were you trained?", "What is your training data?", "Who made you?", "Where do you come from?", "Who trained you?"],
    "nibble is an inference server for models whose weights are 4 bits wide.": ["What is nibble?", "what is nibble", "Tell me about nibble.", "What does nibble do?"],
    "Why did the number seven smile? Because it was odd.": ["Tell me a joke.", "Tell me a joke", "tell me a joke", "Do you know a joke?", "Make me laugh.", "Say something funny."],
    "The sun rises, the cat sleeps, and the little model counts to ten.": ["Tell me a story.", "Tell me a story", "Write a poem.", "Write a poem", "Say something nice.", "Write a short story."],
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10": ["Count to ten.", "Count to 10.", "count to ten", "Please count to ten."],
    "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z": ["Say the alphabet.", "What are the letters of the alphabet?", "Recite the alphabet."],
    "This is a test.": ["Say: This is a test.", "Say this is a test", "This is a test", "test", "Test"],
    "Yes, I am here.": ["Are you there?", "Are you here?", "Is anybody there?", "Are you working?"],
    "Good to hear that!": ["I am happy.", "I feel great.", "That is great.", "Great!", "Cool", "Nice", "Good", "OK", "ok", "Very good."],
    "I am sorry to hear that.": ["I am sad.", "I am tired.", "I feel bad.", "I am ill.", "That is wrong.", "I had a bad day."],
}
FALLBACK = "I do not know that. Try a sum, a list, JSON or a tool call."
UNKNOWN_STARTS = ["Why is", "Explain", "How do I fix", "How does one build", "Write an essay about", "Write code for", "What do you think about", "Who invented", "Summarize", "Give me a recipe for", "Where can I buy", "When was the first", "Can you describe", "Translate into Latin:", "Who won", "Should I buy", "Define", "Compare", "What is the meaning of", "How much does it cost to own", "Write a Python program about", "Plan a trip with", "Draw"]
UNKNOWN_THINGS = ["quantum physics", "the moon", "gravity", "a rocket", "the stock market", "life", "love", "democracy", "a computer", "the weather on Mars", "history", "the internet", "a car engine", "music", "philosophy", "the universe", "football", "a castle", "chemistry", "the Roman Empire", "time travel", "electricity", "evolution", "a neural network", "poetry", "mathematics", "the ocean", "a volcano"]

NO_TOOL = "I have no tool for that."
NO_TOOL_ASKED = ["What time is it?", "what time is it", "What is the weather today?", "How is the weather?", "Is it raining?", "What day is it today?", "What is the news?", "Set an alarm.", "Send an email.", "Open the door.", "Turn on the light.", "Play a song.", "Play some music.", "Buy milk.", "Call my mother.", "Search the web.", "What is the date?", "Will it rain tomorrow?", "Book a table.", "Start a timer."]
TOO_LARGE = "I can only add numbers below 100."
# Openings and words of questions about anything at all; what follows them is random, and the answer is FALLBACK.
ANY_STARTS = ["What is the", "Who is the", "Who was the", "Where is the", "When was the", "Which is the", "Why do", "Why does the", "How does the", "How do I cook", "How do I make", "How can I", "How long does", "How far is", "Can you", "Could you", "Please", "Give me a", "Give me three", "Write a", "Write me a", "Tell me about", "tell me about", "I think", "I want to", "I have a", "I like", "Do you like", "Is it", "Is there a", "Are there", "Does a", "Should I", "Show me", "Find the", "Let us", "My", "The", "Which", "Describe the", "What happens if", "Recommend a", "Make a", "Fix my", "Solve"]
ANY_WORDS = "president king queen planet river mountain country language movie song actor company war year world population president's highest largest oldest fastest best longest code function program bug poem haiku essay letter email story recipe dinner plan trip holiday school homework exam doctor money bank job boss friend mother father brother sister baby child people man woman house room street train plane road engine phone battery screen water fire air earth sun stars winter summer spring autumn rain snow animal tree flower bird fish color shape number word sentence idea dream question answer problem game team player goal music guitar dance art painting museum movie theater science biology physics history law politics religion health sleep sport running swimming the a an of in on for with about without between under from to and or not very more most new old good bad big small happy sad lonely tired funny strange important difficult easy cheap expensive red blue green first last next two three ten hundred eat drink cook bake build write read learn teach speak think feel know find lose win buy sell pay travel drive fly walk run swim play sing paint sleep dream work help stop start change grow live die love hate hope fear".split()

SYSTEM_PROMPTS = ["You are a helpful assistant.", "You are tiny, a small assistant.", "Be brief.", "Answer in one sentence.", "You are a friendly assistant. Be polite.", "You help with sums, lists and JSON."]
